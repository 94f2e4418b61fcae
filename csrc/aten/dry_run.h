// Errors that a kernel raises whatever the values are, brought forward to the call.
#pragma once

#include <c10/util/FunctionRef.h>

#include "launch.h"

namespace accel {

// CPU kernels find out for themselves that they have no code for a dtype; on a worker that would
// rise at the next synchronisation. So the first small call of a kernel with a combination of
// dtypes runs it on dummies in host memory first, and throws the c10::NotImplementedError that it
// throws. `kernel` tells kernels apart.
enum class DryRunSizes {
  kReal,
  kOne, // for kernels that any sizes suit, so that large calls are tried, too
};
void check_dtypes(
    c10::ArrayRef<Operand> operands,
    size_t kernel,
    c10::function_ref<void(at::TensorList dummies)> run,
    DryRunSizes sizes = DryRunSizes::kReal);

} // namespace accel
