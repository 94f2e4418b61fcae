// A stream's queue: variable-length records written in place into a ring of bytes.
//
// One producer at a time (the stream's lock) and one consumer (the stream's worker). Positions only
// grow; a record never wraps, a filler takes the rest of the ring instead.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "accel.h"

namespace accel::driver {

// The head of a record. Accesses and payload follow it, or lie in `heap` if they are large.
struct alignas(16) Record {
  uint32_t bytes; // to the next record
  uint32_t filler; // 1: nothing but the rest of the ring
  uint64_t ticket;
  accelError_t (*invoke)(const void* payload);
  void (*destroy)(void* payload);
  void* payload;
  void* heap;
  accelLaunchInfo info;
};

class Ring {
 public:
  static constexpr size_t kBytes = size_t{512} << 10;
  static constexpr size_t kLargestRecord = kBytes / 4;

  // ---- Producer ----
  // Room for a record of `bytes` (at most kLargestRecord), not yet visible; null if there is none.
  // The last reservation counts.
  Record* reserve(size_t bytes);
  // Makes the reserved record visible.
  void publish();
  // Makes the ring's memory, which comes with its first use; false if the system refuses.
  bool open();
  // Frees it; the ring is empty and is not used again.
  void close();

  // ---- Consumer ----
  // The oldest record, or null.
  Record* front();
  // Ends the oldest record; its bytes may be overwritten from now on.
  void pop(const Record* record);
  // True if front() would find something; any thread.
  bool empty() const {
    return published_.load() == tail_.load();
  }

 private:
  Record* at(uint64_t position) const {
    return reinterpret_cast<Record*>(bytes_ + position % kBytes);
  }

  std::byte* bytes_ = nullptr;
  uint64_t head_ = 0;
  uint64_t reserved_ = 0; // where the reserved record ends
  alignas(64) std::atomic<uint64_t> published_{0};
  alignas(64) std::atomic<uint64_t> tail_{0};
};

} // namespace accel::driver
