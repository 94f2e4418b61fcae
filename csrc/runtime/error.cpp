#include "error.h"

#include <c10/util/Exception.h>

#include <string>

namespace accel {

namespace {

[[noreturn]] void throw_accelerator_error(accelError_t code, const std::string& message) {
  const c10::SourceLocation where{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  throw c10::AcceleratorError(where, static_cast<int32_t>(code), message);
}

// As torch.cuda's advice: the line that raises is not the line that is wrong.
const char* late_hint() {
  return accelGetLaunchBlocking() != 0
      ? ""
      : "\nKernels fail after their launch, so this call may not be the one to blame. "
        "ACCEL_LAUNCH_BLOCKING=1 raises the error at the launch.";
}

} // namespace

void check(accelError_t code) {
  if (code == accelSuccess) {
    return;
  }
  const std::string message = accelGetLastErrorMessage();
  switch (code) {
    case accelErrorOutOfMemory:
      TORCH_CHECK_WITH(OutOfMemoryError, false, message);
    case accelErrorLaunchFailure:
      throw_accelerator_error(code, "accel kernel failed: " + message + late_hint());
    case accelErrorAborted:
    case accelErrorCapture:
      throw_accelerator_error(code, message);
    case accelErrorRefused: // a race: the text says it all
    case accelErrorNotReady: // a reset or another call that gave up waiting
    case accelErrorInvalidDevice:
    case accelErrorInvalidValue:
    case accelErrorForked:
    case accelErrorConfig:
    case accelErrorNotSupported:
    default:
      TORCH_CHECK(false, message);
  }
}

} // namespace accel
