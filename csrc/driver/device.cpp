#include "device.h"

#include <algorithm>
#include <cstdio>

#include "os_linux.h"
#include "process.h"
#include "stream.h"
#include "trace.h"
#include "worker.h"

namespace accel::driver {

Device::Device(
    int index,
    uintptr_t device_base,
    uintptr_t host_base,
    uint64_t bytes,
    uint64_t import_bytes)
    : index(index),
      device_base(device_base),
      host_base(host_base),
      bytes(bytes),
      memory(bytes, kSegmentBytes),
      imports(import_bytes, os::kPageBytes) {}

Device::~Device() {
  if (file_ >= 0) {
    os::close_memory(file_);
  }
}

bool Device::open() {
  char name[32];
  std::snprintf(name, sizeof(name), "accel:%d", index);
  file_ = os::open_memory(name, bytes);
  return file_ >= 0 && os::map_memory(reinterpret_cast<void*>(host_base), bytes, file_);
}

void Device::abort() {
  aborted.store(1);
  os::futex_wake_all(aborted);
  // Waiters of this device's streams, and this device's workers that wait for another's.
  for (const auto& device : g_chip->devices) {
    for (accelStream_t stream : device->streams()) {
      if (device.get() == this) {
        stream->grid_abort.store(1);
      }
      stream->completion.wake();
      wake_worker(*stream);
    }
  }
}

accelError_t Device::reset(uint64_t deadline) {
  if (resetting_.exchange(true)) {
    return fail(accelErrorNotReady, "accel: another thread is resetting accel:%d", index);
  }
  abort();
  constexpr uint64_t kNap = 100'000;
  for (accelStream_t stream : streams()) {
    const uint64_t ticket = stream->enqueued.load();
    while (stream->completion.value() < ticket) {
      if (!attach_worker(*stream) || os::now() >= deadline) {
        resetting_.store(false);
        return fail(
            accelErrorNotReady,
            "accel: a kernel on accel:%d still runs, and a kernel cannot be stopped; the device "
            "stays aborted, reset it again once the kernel has ended",
            index);
      }
      os::futex_wait(aborted, 1, kNap);
    }
    stream->failure.clear();
    trace_complete(stream, stream->enqueued.load());
  }
  // In this order: a waiter that finds the word clear finds the count changed.
  resets.fetch_add(1);
  aborted.store(0);
  resetting_.store(false);
  return accelSuccess;
}

accelStream_t Device::add_stream(int priority) {
  static std::atomic<uint32_t> ids{0};
  auto stream = std::make_unique<accelStream>(*this, priority, ids.fetch_add(1));
  std::lock_guard<std::mutex> lock(streams_mutex_);
  streams_.push_back(stream.get());
  return stream.release();
}

std::vector<accelStream_t> Device::streams() {
  std::lock_guard<std::mutex> lock(streams_mutex_);
  return streams_;
}

Device* find_device(int index) {
  const int count = static_cast<int>(g_chip->devices.size());
  if (index >= 0 && index < count) {
    return g_chip->devices[index].get();
  }
  if (count == 0) {
    fail(accelErrorInvalidDevice, "accel: there is no device accel:%d; there are none", index);
  } else {
    fail(
        accelErrorInvalidDevice,
        "accel: there is no device accel:%d; the devices are accel:0 to accel:%d (ACCEL_DEVICES)",
        index,
        count - 1);
  }
  return nullptr;
}

} // namespace accel::driver

using namespace accel::driver;

extern "C" accelError_t accelDeviceGetProperties(int device, accelDeviceProp* prop) {
  return entry([&] {
    if (prop == nullptr || prop->size < sizeof(accelDeviceProp)) {
      return invalid("accelDeviceGetProperties", "the result is null or its size is too small");
    }
    const Device* found = find_device(device);
    if (found == nullptr) {
      return accelErrorInvalidDevice;
    }
    // The simulated chip's data sheet. At 1 GHz a cycle is a nanosecond.
    accelDeviceProp sheet{};
    sheet.size = sizeof(sheet);
    std::snprintf(sheet.name, sizeof(sheet.name), "Accel Simulator");
    sheet.total_memory = found->bytes;
    sheet.cores = static_cast<int32_t>(g_chip->config.cores);
    sheet.lanes = 32;
    sheet.sram_per_core = g_chip->config.sram;
    sheet.hbm_bytes_per_second = 1'000'000'000'000;
    sheet.link_bytes_per_second = 50'000'000'000;
    sheet.clock_khz = 1'000'000;
    sheet.host_visible = 1;
    *prop = sheet;
    return accelSuccess;
  });
}

extern "C" accelError_t accelDeviceSynchronize(int device, const char* caller) {
  return entry([&] {
    Device* found = find_device(device);
    if (found == nullptr) {
      return accelErrorInvalidDevice;
    }
    const uint32_t since = found->resets.load();
    struct Target {
      accelStream_t stream;
      uint64_t ticket;
    };
    std::vector<Target> targets;
    const char* count_as = caller_or_unknown(caller); // one wait to the caller, so counted once
    accelStream_t capturing = nullptr;
    for (accelStream_t stream : found->streams()) {
      capturing = stream->capture_id.load() != 0 ? stream : capturing;
      targets.push_back({stream, stream->enqueued.load()});
    }
    if (const accelError_t code = forbid(capturing, count_as)) {
      return code;
    }
    for (const auto& [stream, ticket] : targets) {
      const bool unfinished = stream->completion.value() < ticket;
      if (const accelError_t code =
              host_wait(stream, ticket, unfinished ? count_as : nullptr, since)) {
        return code;
      }
      count_as = unfinished ? nullptr : count_as;
      trace_complete(stream, ticket);
    }
    std::shared_ptr<Failure> first;
    for (const auto& [stream, ticket] : targets) {
      std::shared_ptr<Failure> failure = stream->failure.find(ticket);
      if (failure != nullptr && (first == nullptr || failure->order < first->order)) {
        first = std::move(failure);
      }
    }
    return raise(first);
  });
}

extern "C" accelError_t accelDeviceAbort(int device) {
  return entry([&] {
    Device* found = find_device(device);
    if (found == nullptr) {
      return accelErrorInvalidDevice;
    }
    found->abort();
    return accelSuccess;
  });
}

extern "C" accelError_t accelDeviceReset(int device, int deadline_ms) {
  return entry([&] {
    Device* found = find_device(device);
    if (found == nullptr) {
      return accelErrorInvalidDevice;
    }
    if (stream_of_this_thread() != nullptr) {
      return fail(
          accelErrorNotSupported, "accel: accelDeviceReset: a kernel cannot reset a device");
    }
    const uint64_t deadline =
        deadline_ms < 0 ? os::kForever : os::now() + static_cast<uint64_t>(deadline_ms) * 1'000'000;
    return found->reset(deadline);
  });
}
