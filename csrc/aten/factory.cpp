// Tensors without values: empty, empty_strided, _efficientzerotensor. Every other factory is a
// composite over these.
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/TensorFactories.h>
#include <torch/library.h>

#include <mutex>

#include "../runtime/allocator.h"
#include "../runtime/device.h"

namespace accel {

namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

// Validates the options and makes the device current while alive.
class OnDevice {
 public:
  OnDevice(
      std::optional<c10::Layout> layout,
      std::optional<c10::Device> device,
      std::optional<bool> pin_memory)
      : index_(checked_index(device ? device->index() : c10::DeviceIndex(-1))),
        previous_(exchange_device(index_)) {
    TORCH_CHECK(
        !pin_memory.value_or(false),
        "Only dense CPU tensors can be pinned; accel:",
        static_cast<int>(index_),
        " is device memory: leave pin_memory out");
    TORCH_CHECK_NOT_IMPLEMENTED(
        layout.value_or(c10::kStrided) == c10::kStrided,
        "accel: tensors of layout ",
        *layout,
        " are not supported yet; make a dense one, or use device='cpu'");
  }
  ~OnDevice() {
    unchecked_exchange_device(previous_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  c10::DeviceIndex index_;
  c10::DeviceIndex previous_;
};

at::Tensor fill_if_deterministic(at::Tensor tensor) {
  const auto& context = at::globalContext();
  if (C10_UNLIKELY(
          context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory())) {
    at::native::fill_empty_deterministic_(tensor);
  }
  return tensor;
}

at::Tensor empty(
    c10::IntArrayRef size,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pin_memory,
    std::optional<c10::MemoryFormat> memory_format) {
  const OnDevice on_device(layout, device, pin_memory);
  return fill_if_deterministic(
      at::detail::empty_generic(
          size, device_allocator(), kKeys, c10::dtype_or_default(dtype), memory_format));
}

at::Tensor empty_strided(
    c10::IntArrayRef size,
    c10::IntArrayRef stride,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pin_memory) {
  const OnDevice on_device(layout, device, pin_memory);
  return fill_if_deterministic(
      at::detail::empty_strided_generic(
          size, stride, device_allocator(), kKeys, c10::dtype_or_default(dtype)));
}

at::Tensor efficient_zero_tensor(
    c10::IntArrayRef size,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pin_memory) {
  const OnDevice on_device(layout, device, pin_memory);
  auto allocator = at::native::ZeroTensorAllocator(c10::Device(kDeviceType, current_device()));
  return at::detail::empty_generic(
      size,
      &allocator,
      kKeys | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor),
      c10::dtype_or_default(dtype),
      std::nullopt);
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("_efficientzerotensor", TORCH_FN(efficient_zero_tensor));
}

} // namespace accel
