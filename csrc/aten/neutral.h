// Kernels of torch for sparse and nested CPU tensors that touch no element: they work on metadata
// or call dense operators on the members. On accel tensors they run as they are, and wait for
// nothing.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>

#include <string_view>

namespace accel {

// Whether torch's kernel of `op` (name and overload, without aten::) for `cpu` (SparseCPU,
// SparseCsrCPU, NestedTensorCPU) is such a one.
bool is_neutral(std::string_view op, c10::DispatchKey cpu);

// Boxed kernel: runs it.
void run_neutral(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

} // namespace accel
