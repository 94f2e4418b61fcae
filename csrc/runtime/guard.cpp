// The device guard: what autograd, torch.Stream, torch.Event and torch.accelerator call.
#include <c10/core/DeviceCapability.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include "allocator.h"
#include "device.h"
#include "error.h"
#include "ipc.h"
#include "plant.h"
#include "stream.h"
#include "warning.h"

namespace accel {

namespace {

accelEvent_t as_event(void* event) {
  return static_cast<accelEvent_t>(event);
}

struct GuardImpl final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override {
    return kDeviceType;
  }

  c10::Device exchangeDevice(c10::Device device) const override {
    return {kDeviceType, exchange_device(device.index())};
  }
  c10::Device getDevice() const override {
    return {kDeviceType, current_device()};
  }
  void setDevice(c10::Device device) const override {
    if (device.has_index()) {
      set_device(device.index());
    }
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    unchecked_exchange_device(device.index());
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return device_count();
  }
  c10::DeviceCapability getDeviceCapability(c10::Device device) const override {
    checked_index(device.index());
    // The simulated chip computes every dtype of torch but the quantized ones.
    c10::DeviceCapability capability;
    auto& dtypes = capability.capability_data.supported_scalar_types;
    dtypes.has_QInt8 = dtypes.has_QUInt8 = dtypes.has_QInt32 = 0;
    dtypes.has_QUInt4x2 = dtypes.has_QUInt2x4 = 0;
    return capability;
  }

  c10::Stream getStream(c10::Device device) const override {
    return current_stream(device.index());
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return default_stream(device.index());
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high) const override {
    return stream_from_pool(device.index(), high ? kHighestPriority : kLowestPriority);
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return stream_from_pool(device.index(), priority);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return exchange_stream(stream);
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return native(stream);
  }
  bool isStreamCapturing(const c10::Stream& stream) const override {
    return capture_id(stream) != 0;
  }
  bool queryStream(const c10::Stream& stream) const override {
    return query_stream(stream);
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    synchronize_stream(stream, "Stream.synchronize");
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    synchronize_device(index, "synchronize");
  }

  void record(
      void** event,
      const c10::Stream& stream,
      const c10::DeviceIndex index,
      const c10::EventFlag flag) const override {
    TORCH_CHECK(
        index == -1 || index == stream.device_index(),
        "accel: the event of device accel:",
        static_cast<int>(index),
        " cannot be recorded on a stream of ",
        stream.device());
    auto* const target = native(stream);
    if (*event == nullptr) {
      if (auto* const adopted = take_adopted()) {
        *event = adopted;
        return; // never recorded here
      }
      accelEvent_t created = nullptr;
      const bool timing = flag == c10::EventFlag::BACKEND_DEFAULT;
      check(accelEventCreate(timing ? accelEventTiming : 0, &created));
      *event = created;
    }
    check(accelEventRecord(as_event(*event), target));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr && C10_LIKELY(!planted(Plant::kStreamWait))) {
      check(accelStreamWaitEvent(native(stream), as_event(event)));
    }
  }
  bool queryEvent(void* event) const override {
    if (event == nullptr) {
      return true;
    }
    const auto code = accelEventQuery(as_event(event));
    if (code == accelErrorNotReady) {
      return false;
    }
    check(code);
    return true;
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) {
      const auto code = accelEventSynchronize(as_event(event), "Event.synchronize");
      emit_collected_warnings();
      check(code);
    }
  }
  void destroyEvent(void* event, const c10::DeviceIndex /*index*/) const noexcept override {
    accelEventDestroy(as_event(event));
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex /*index*/) const override {
    TORCH_CHECK(
        start != nullptr && end != nullptr,
        "accel: both events must be recorded before calculating elapsed time");
    double milliseconds = 0;
    const auto code = accelEventElapsedTime(&milliseconds, as_event(start), as_event(end));
    TORCH_CHECK(
        code != accelErrorNotReady,
        "accel: both events must be completed before calculating elapsed time; call "
        "end.synchronize() first");
    check(code);
    return milliseconds;
  }

  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    record_stream(data, stream);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, GuardImpl)

} // namespace

} // namespace accel
