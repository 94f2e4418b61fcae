// Errors that a kernel raises whatever the values are, brought forward to the call.
#pragma once

#include "launch.h"

namespace accel {

// CPU kernels find out for themselves that they have no code for a dtype; on a worker that would
// rise at the next synchronisation. So the first small call of a kernel with a combination of
// dtypes runs it on dummies in host memory first, and throws the c10::NotImplementedError that it
// throws.
void check_dtypes(c10::ArrayRef<Operand> operands, detail::Run run, const void* kernel);

} // namespace accel
