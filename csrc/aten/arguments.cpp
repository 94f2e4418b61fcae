#include "arguments.h"

#include <optional>

namespace accel {

c10::Device device_of_call(c10::ArrayRef<c10::IValue> arguments) {
  std::optional<c10::Device> found;
  for (const auto& value : arguments) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (!found && on_accel(tensor)) {
        found = tensor.device();
      }
    });
    if (found) {
      break;
    }
  }
  for (const auto& value : arguments) {
    if (!found && value.isDevice() && value.toDevice().type() == kDeviceType) {
      found = value.toDevice();
    }
  }
  return {kDeviceType, checked_index(found ? found->index() : c10::DeviceIndex(-1))};
}

} // namespace accel
