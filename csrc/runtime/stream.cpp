#include "stream.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <mutex>

#include "error.h"
#include "warning.h"

namespace accel {

namespace {

constexpr int kPerPool = 32;
constexpr int kPriorities = 2; // pool 0: normal, pool 1: high
constexpr int kIds = 1 + kPerPool * kPriorities;
constexpr int kMostIds = 256; // what t_current can name; those from kIds on are external streams
constexpr int kMaxDevices = 64;

// Driver streams are made on first use and live until the process ends.
struct DeviceStreams {
  std::mutex mutex;
  std::array<std::atomic<accelStream_t>, kMostIds> streams{};
  std::array<std::atomic<uint32_t>, kPriorities> next{};
};

std::array<DeviceStreams, kMaxDevices>& all_streams() {
  static auto* streams = new std::array<DeviceStreams, kMaxDevices>(); // leaked: used at exit
  return *streams;
}

// The current stream's id per device; 0, the default stream, until set.
thread_local std::array<uint8_t, kMaxDevices> t_current{};

c10::Stream make(c10::DeviceIndex index, int id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kDeviceType, index), id);
}

[[noreturn]] void unknown_id(c10::Stream stream) {
  TORCH_CHECK(
      false,
      "accel: there is no stream with id ",
      stream.id(),
      " on ",
      stream.device(),
      "; take one from torch.Stream(device=...) or torch.accel.Stream()");
}

int find_id(const DeviceStreams& device, accelStream_t stream) {
  for (int id = 0; id < kMostIds; ++id) {
    if (device.streams[id].load(std::memory_order_acquire) == stream) {
      return id;
    }
  }
  return -1;
}

int priority_of(int id) {
  return id == 0 || id <= kPerPool ? kLowestPriority : kHighestPriority;
}

} // namespace

c10::Stream default_stream(c10::DeviceIndex index) {
  return make(checked_index(index), 0);
}

c10::Stream current_stream(c10::DeviceIndex index) {
  const auto device = checked_index(index);
  return make(device, t_current[device]);
}

c10::Stream stream_from_pool(c10::DeviceIndex index, int priority) {
  const auto device = checked_index(index);
  const int pool = priority < kLowestPriority ? 1 : 0; // clamped to the two there are
  const auto n = all_streams()[device].next[pool].fetch_add(1, std::memory_order_relaxed);
  return make(device, 1 + pool * kPerPool + static_cast<int>(n % kPerPool));
}

c10::Stream exchange_stream(c10::Stream stream) {
  native(stream); // validates
  const auto device = stream.device_index();
  const auto previous = make(device, t_current[device]);
  t_current[device] = static_cast<uint8_t>(stream.id());
  return previous;
}

accelStream_t native(c10::Stream stream) {
  TORCH_CHECK(
      stream.device_type() == kDeviceType,
      "accel: expected a stream of an accel device, got one of ",
      stream.device());
  if (C10_UNLIKELY(stream.id() < 0 || stream.id() >= kMostIds)) {
    unknown_id(stream);
  }
  const auto index = checked_index(stream.device_index());
  auto& device = all_streams()[index];
  auto& slot = device.streams[stream.id()];
  if (auto* existing = slot.load(std::memory_order_acquire)) {
    return existing;
  }
  if (stream.id() >= kIds) {
    unknown_id(stream);
  }
  lazy_init();
  std::lock_guard<std::mutex> lock(device.mutex);
  if (slot.load(std::memory_order_relaxed) == nullptr) {
    accelStream_t created = nullptr;
    check(accelStreamCreate(index, priority_of(static_cast<int>(stream.id())), &created));
    slot.store(created, std::memory_order_release);
  }
  return slot.load(std::memory_order_relaxed);
}

c10::Stream from_native(accelStream_t stream) {
  const auto index = static_cast<c10::DeviceIndex>(accelStreamGetDevice(stream));
  TORCH_CHECK(index >= 0, "accel: ", stream, " is not the handle of a stream");
  const int id = find_id(all_streams()[index], stream);
  TORCH_CHECK(id >= 0, "accel: the driver stream ", stream, " was not made by torch");
  return make(index, id);
}

c10::Stream stream_from_external(accelStream_t stream, c10::DeviceIndex index) {
  const auto expected = checked_index(index);
  lazy_init();
  const int owner = accelStreamGetDevice(stream);
  TORCH_CHECK_VALUE(owner >= 0, "accel: ", stream, " is not the handle of a stream");
  TORCH_CHECK_VALUE(
      owner == expected,
      "accel: the stream ",
      stream,
      " is of accel:",
      owner,
      ", not of accel:",
      static_cast<int>(expected));
  auto& device = all_streams()[expected];
  std::lock_guard<std::mutex> lock(device.mutex);
  const int known = find_id(device, stream);
  if (known >= 0) {
    return make(expected, known);
  }
  for (int id = kIds; id < kMostIds; ++id) {
    if (device.streams[id].load(std::memory_order_relaxed) == nullptr) {
      device.streams[id].store(stream, std::memory_order_release);
      return make(expected, id);
    }
  }
  TORCH_CHECK(
      false,
      "accel: accel:",
      owner,
      " has ",
      kMostIds - kIds,
      " external streams, the most it can");
}

uint64_t capture_of(accelStream_t stream) noexcept {
  uint64_t id = 0;
  return accelStreamGetCaptureInfo(stream, nullptr, &id) == accelSuccess ? id : 0;
}

uint64_t capture_id(c10::Stream stream) noexcept {
  if (stream.id() < 0 || stream.id() >= kIds) {
    return 0;
  }
  auto* const made =
      all_streams()[stream.device_index()].streams[stream.id()].load(std::memory_order_acquire);
  return made == nullptr ? 0 : capture_of(made);
}

void forbid_in_capture(c10::Stream stream, const char* call) {
  check(accelCaptureForbid(native(stream), call));
}

bool query_stream(c10::Stream stream) {
  const auto code = accelStreamQuery(native(stream));
  if (code == accelErrorNotReady) {
    return false;
  }
  check(code);
  return true;
}

void synchronize_stream(c10::Stream stream, const char* caller) {
  note_sync(caller);
  const auto code = accelStreamSynchronize(native(stream), caller);
  emit_collected_warnings();
  check(code);
}

void synchronize_device(c10::DeviceIndex index, const char* caller) {
  const auto device = checked_index(index);
  lazy_init();
  const auto code = accelDeviceSynchronize(device, caller);
  emit_collected_warnings();
  check(code);
}

void note_memory(accelTracePhase phase, const void* address, size_t bytes, Ticket ticket) noexcept {
  accelTraceEvent event{};
  event.size = sizeof(event);
  event.phase = phase;
  event.address = address;
  event.bytes = bytes;
  event.stream = ticket.stream;
  event.ticket = ticket.value;
  accelTraceNote(&event);
}

Ticket last_ticket(accelStream_t stream) {
  Ticket ticket{stream, 0};
  if (stream != nullptr) {
    accelStreamGetTickets(stream, &ticket.value, nullptr);
  }
  return ticket;
}

} // namespace accel
