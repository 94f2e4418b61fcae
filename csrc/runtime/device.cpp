#include "device.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <mutex>
#include <string>

#include "error.h"

namespace accel {

intptr_t g_address_offset = 0;

namespace {

std::atomic<uintptr_t> g_host_base{0};
std::atomic<uintptr_t> g_window_bytes{0};
std::atomic<int> g_ready_devices{0}; // how many, once initialised
thread_local c10::DeviceIndex t_current_device = 0;

constexpr const char* kForkText =
    "Cannot re-initialize accel in forked subprocess. To use accel with multiprocessing, you must "
    "use the 'spawn' start method";

bool known(c10::DeviceIndex index) {
  return index >= 0 && index < g_ready_devices.load(std::memory_order_relaxed) && !in_bad_fork();
}

void check_index(c10::DeviceIndex index) {
  if (C10_LIKELY(known(index))) {
    return;
  }
  const int count = device_count();
  if (index >= 0 && index < count) {
    return;
  }
  lazy_init(); // a bad ACCEL_* value or a fork is the better explanation
  TORCH_CHECK(
      count > 0,
      "accel: there is no device accel:",
      static_cast<int>(index),
      "; ACCEL_DEVICES=0 hides the accel devices");
  const std::string last = "accel:" + std::to_string(count - 1);
  TORCH_CHECK(
      false,
      "accel: invalid device index ",
      static_cast<int>(index),
      count == 1 ? "; the only device is " : "; the devices are accel:0 to ",
      last,
      " (ACCEL_DEVICES sets how many)");
}

} // namespace

bool is_initialized() {
  return accelIsInitialized() != 0;
}

void lazy_init() {
  TORCH_CHECK(!in_bad_fork(), kForkText);
  // A driver that failed to initialise is asked again: the reason may have gone.
  static std::mutex mutex;
  static std::atomic<bool> done{false};
  if (done.load(std::memory_order_acquire)) {
    return;
  }
  std::lock_guard<std::mutex> lock(mutex);
  if (done.load(std::memory_order_relaxed)) {
    return;
  }
  check(accelInit());
  accelAddressMap map{};
  map.size = sizeof(map);
  check(accelGetAddressMap(&map));
  g_address_offset = map.offset;
  g_host_base.store(map.host_base, std::memory_order_relaxed);
  g_window_bytes.store(map.window_bytes, std::memory_order_release);
  check(accelFaultHandlerInstall());
  g_ready_devices.store(device_count(), std::memory_order_relaxed);
  done.store(true, std::memory_order_release);
}

c10::DeviceIndex device_count() noexcept {
  int count = 0;
  return accelGetDeviceCount(&count) == accelSuccess ? static_cast<c10::DeviceIndex>(count) : 0;
}

c10::DeviceIndex current_device() noexcept {
  return t_current_device;
}

void set_device(c10::DeviceIndex index) {
  check_index(index);
  t_current_device = index;
}

c10::DeviceIndex exchange_device(c10::DeviceIndex index) {
  const auto previous = t_current_device;
  if (index >= 0 && index != previous) {
    set_device(index);
  }
  return previous;
}

c10::DeviceIndex unchecked_exchange_device(c10::DeviceIndex index) noexcept {
  const auto previous = t_current_device;
  if (known(index) || (index >= 0 && index < device_count())) {
    t_current_device = index;
  }
  return previous;
}

c10::DeviceIndex checked_index(c10::DeviceIndex index) {
  const auto resolved = index == -1 ? t_current_device : index;
  check_index(resolved);
  return resolved;
}

bool is_arena_address(const void* host) noexcept {
  const auto address = reinterpret_cast<uintptr_t>(host);
  return address - g_host_base.load(std::memory_order_relaxed) <
      g_window_bytes.load(std::memory_order_acquire);
}

} // namespace accel
