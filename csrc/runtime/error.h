// Turns the driver's error codes into torch's exceptions.
#pragma once

#include "../driver/accel.h"

namespace accel {

// Throws for every code but accelSuccess, with accelGetLastErrorMessage(): c10::OutOfMemoryError
// for accelErrorOutOfMemory, c10::AcceleratorError for accelErrorLaunchFailure and
// accelErrorAborted, c10::Error (RuntimeError in Python) for the rest. `accelErrorNotReady` must be
// handled by the caller.
ACCEL_API void check(accelError_t code);

} // namespace accel
