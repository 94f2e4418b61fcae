// Runs an operator's CPU kernel in a stream, on aliases of its device tensors, and adopts the
// results.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>

namespace accel {

// The backend keys of a call on accel as they would be on the CPU: dense, sparse, nested.
c10::DispatchKeySet cpu_keys(c10::DispatchKeySet keys);

// Replaces the arguments on top of `stack` by the results. The caller waits. Raises what the kernel
// raises, in torch's words; on OutOfMemoryError reclaims memory and tries once more, unless the
// operator writes to its inputs. `keys` are the call's own.
void run_on_cpu(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

} // namespace accel
