// Planted faults. Each takes one rule of this library out at run time, so that a test can show that
// it would see the rule broken. All off unless a test plants one; a check is one relaxed load.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace accel {

enum class Plant : uint32_t {
  kTicketRule = 1
      << 0, // a thread that uses memory at once takes blocks that queued work still uses
  kCapture = 1 << 1, // host operands are referred to instead of copied into the record
  kReclaim = 1 << 2, // a caller does not try again after its worker ran out of memory
  kReleaseGil = 1 << 3, // host waits keep Python's GIL
  kRestride = 1 << 4, // kernels turn the strides of their outputs round
  kPlacement = 1 << 5, // kernels make their results elsewhere than in their outputs
  kForesight = 1 << 6, // shape functions foresee a leading dimension that there is not
  kSpend = 1 << 7, // the first of two runs of a record uses its captured operands up
  kUndeclaredRead = 1 << 8, // an operand that is written and read is declared as written only
  kStreamWait = 1 << 9, // a stream that is told to wait for an event does not
  kRecordStream = 1 << 10, // record_stream notes nothing
};

inline std::atomic<uint32_t> g_plants{0};

inline bool planted(Plant plant) noexcept {
  return (g_plants.load(std::memory_order_relaxed) & static_cast<uint32_t>(plant)) != 0;
}

// `name` is one of ticket_rule, capture, reclaim, release_gil, restride, placement, foresight,
// spend, undeclared_read, stream_wait, record_stream. Throws for another.
void plant(const std::string& name, bool on);

} // namespace accel
