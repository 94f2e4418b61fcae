// The check that an operator's tensors are on one device, in torch's words.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

namespace accel {

// Throws unless each tensor argument is on `device`. Exempt, as on CUDA: 0-dimensional CPU tensors,
// and the arguments that operators document to be on the CPU. A generator has to be of their type.
void check_same_device(
    const c10::FunctionSchema& schema,
    c10::ArrayRef<c10::IValue> arguments,
    c10::Device device);

} // namespace accel
