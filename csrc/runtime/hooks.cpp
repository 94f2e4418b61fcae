// The hooks: what torch's core asks of "the accelerator" outside of streams.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Storage.h>

#include <algorithm>

#include "allocator.h"
#include "device.h"
#include "error.h"
#include "generator.h"
#include "host_allocator.h"
#include "stream.h"

namespace accel {

namespace {

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return device_count() > 0;
  }
  // Honest, so that the autograd engine leaves an untouched device alone.
  bool hasPrimaryContext(c10::DeviceIndex index) const override {
    return is_initialized() && index >= 0 && index < device_count();
  }
  void init() const override {
    lazy_init();
  }

  c10::DeviceIndex deviceCount() const override {
    return device_count();
  }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    set_device(index);
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return current_device();
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return exchange_device(index);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return unchecked_exchange_device(index);
  }

  bool isPinnedPtr(const void* data) const override {
    return is_pinned_ptr(data);
  }
  at::Allocator* getPinnedMemoryAllocator() const override {
    return host_allocator();
  }
  at::Device getDeviceFromPtr(void* data) const override {
    accelPointerAttributes attributes{};
    attributes.size = sizeof(attributes);
    check(accelPointerGetAttributes(data, &attributes));
    TORCH_CHECK(
        attributes.kind == accelMemoryDevice,
        "accel: ",
        data,
        " is not an address of accel memory; only the data_ptr() of an accel tensor is");
    return {kDeviceType, static_cast<c10::DeviceIndex>(attributes.device)};
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(index);
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return make_generator(index);
  }

  // UntypedStorage.resize_: a new block, the common prefix copied in stream order.
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    auto* const impl = storage.unsafeGetStorageImpl();
    TORCH_CHECK(impl->resizable(), "Trying to resize storage that is not resizable");
    const auto device = storage.device();
    const auto stream = current_stream(device.index());
    auto data = make_data_ptr(allocate(bytes, stream), device);
    const auto common = std::min(bytes, impl->nbytes());
    if (common > 0) {
      check(accelMemcpyAsync(
          data.get(), impl->data(), common, native(stream), "UntypedStorage.resize_"));
    }
    impl->set_data_ptr_noswap(std::move(data));
    impl->set_nbytes(bytes);
  }
};

// Leaked: torch keeps the pointer until the process ends.
[[maybe_unused]] const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  return true;
}();

} // namespace

} // namespace accel
