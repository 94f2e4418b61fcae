// Waiting. Completion is what workers announce; host_wait is the one way in which the host waits.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "accel.h"

namespace accel::driver {

// The newest complete ticket of a stream, and the threads parked until it moves.
//
// No wake-up is lost (Dekker): a waiter first raises waiters_, then reads value_ and parks on
// signal_; the worker first stores value_, then reads waiters_. All four are sequentially
// consistent, so one of the two sees the other: either the waiter reads the new value, or the
// worker reads the waiter and changes signal_, which the waiter had read before value_, so that it
// is either woken or refused by the futex.
class alignas(64) Completion {
 public:
  uint64_t value() const {
    return value_.load();
  }
  // Worker: `ticket` and all before it are complete.
  void advance(uint64_t ticket);
  // Makes every waiter look again.
  void wake();

  // True once `ticket` is complete, after at most a few pauses.
  bool spin(uint64_t ticket) const;
  // Returns when `ticket` is complete or `aborted` is set, which whoever sets it follows by wake().
  void park(uint64_t ticket, const std::atomic<uint32_t>& aborted);

 private:
  std::atomic<uint64_t> value_{0};
  std::atomic<uint32_t> waiters_{0};
  std::atomic<uint32_t> signal_{0};
};

// A wait is about kPauses pauses, then kYields yields, then a futex: pause-spinning for long costs,
// on a busy core, exactly the time that the awaited thread needs.
constexpr int kPauses = 20;
constexpr int kYields = 2000;

// Waits on behalf of the host, with no lock held: the layer above lets go of its own lock through
// the hooks, and the wait is counted under `caller` (null: not counted) if it finds unfinished
// work. On a worker that would have to wait, accelErrorNotSupported. accelErrorAborted if the
// device is aborted, or was reset after `since`, the value of Device::resets before the ticket was
// taken.
accelError_t host_wait(accelStream_t stream, uint64_t ticket, const char* caller, uint32_t since);

// As host_wait for what no stream of this process announces: looks again and again, with longer and
// longer naps, until `look` returns true.
void host_poll(const std::function<bool()>& look, const char* caller);

// The name to count a wait under.
inline const char* caller_or_unknown(const char* caller) {
  return caller == nullptr ? "unknown" : caller;
}

} // namespace accel::driver
