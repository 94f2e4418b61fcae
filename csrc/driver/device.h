// One device: its arena, its streams, its abort word.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <vector>

#include "accel.h"
#include "address_map.h"

namespace accel::driver {

class Device {
 public:
  Device(
      int index,
      uintptr_t device_base,
      uintptr_t host_base,
      uint64_t bytes,
      uint64_t import_bytes);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Makes the arena; false if the system refuses.
  bool open();

  const int index;
  const uintptr_t device_base;
  const uintptr_t host_base;
  const uint64_t bytes;

  // Non-zero once aborted; a futex word for sleepers.
  std::atomic<uint32_t> aborted{0};
  void abort();
  // Counts resets: whoever sees it change while waiting knows that the awaited work may be lost.
  std::atomic<uint32_t> resets{0};
  // Aborts, and clears the abort word once no launch from before runs.
  accelError_t reset(uint64_t deadline);

  std::mutex memory_mutex; // a leaf; for both
  RangeAllocator memory;
  RangeAllocator imports; // behind the device's own memory

  // The arena's memory file, for those who share it with another process.
  int file() const {
    return file_;
  }

  // Streams are never freed, so that handles and tickets stay valid.
  accelStream_t add_stream(int priority);
  std::vector<accelStream_t> streams();

 private:
  std::atomic<bool> resetting_{false};
  int file_ = -1;
  std::mutex streams_mutex_; // a leaf
  std::vector<accelStream_t> streams_;
};

} // namespace accel::driver
