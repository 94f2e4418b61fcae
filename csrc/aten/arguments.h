// The boxed arguments of a call: their tensors, and the device that they are on.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>

#include "../runtime/device.h"

namespace accel {

// Calls `visit(tensor)` for the tensors of an argument: Tensor, Tensor?, Tensor[] or Tensor?[].
// Undefined ones are visited, absent elements of a Tensor?[] are not.
template <class Visit>
void for_each_tensor(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isTensor()) {
        visit(element.toTensor());
      }
    }
  }
}

inline bool on_accel(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kDeviceType;
}

// The device whose current stream runs the call: that of the first device tensor, of a Device
// argument, or the current one.
c10::Device device_of_call(c10::ArrayRef<c10::IValue> arguments);

} // namespace accel
