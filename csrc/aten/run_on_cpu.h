// Runs an operator's CPU kernel in a stream, on aliases of its device tensors, and adopts the
// results.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace accel {

// Replaces the arguments on top of `stack` by the results. The caller waits. Raises what the kernel
// raises, in torch's words; on OutOfMemoryError reclaims memory and tries once more, unless the
// operator writes to its inputs.
void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack);

} // namespace accel
