#include "error.h"

#include <c10/util/Exception.h>

namespace accel {

void check(accelError_t code) {
  if (code == accelSuccess) {
    return;
  }
  const std::string message = accelGetLastErrorMessage();
  switch (code) {
    case accelErrorOutOfMemory:
      TORCH_CHECK_WITH(OutOfMemoryError, false, message);
    case accelErrorLaunchFailure:
    case accelErrorAborted: {
      const c10::SourceLocation where{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
      throw c10::AcceleratorError(where, static_cast<int32_t>(code), message);
    }
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
