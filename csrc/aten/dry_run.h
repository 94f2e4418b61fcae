// Errors that a kernel raises whatever the values are, brought forward to the call.
#pragma once

#include <c10/core/Scalar.h>
#include <c10/util/FunctionRef.h>

#include <optional>

#include "launch.h"

namespace accel {

// The scalar arguments of a call.
using Scalars = c10::ArrayRef<std::optional<at::Scalar>>;

enum class DryRunSizes {
  kReal,
  kOne, // for kernels that any sizes suit, so that large calls are tried, too
};

// CPU kernels find out for themselves that they have no code for a dtype, or that a scalar does not
// fit one; on a worker that would rise at the next synchronisation. So the first small call of a
// kernel with a combination of dtypes, and any first one with a scalar that is beyond one of them,
// runs it on dummies in host memory, and throws what that throws of dtypes and scalars. A call that
// reads no element is run so every time, and throws whatever that throws. `kernel` tells kernels
// apart.
void check_dtypes(
    c10::ArrayRef<Operand> operands,
    Scalars scalars,
    size_t kernel,
    c10::function_ref<void(at::TensorList dummies)> run,
    DryRunSizes sizes = DryRunSizes::kReal);

} // namespace accel
