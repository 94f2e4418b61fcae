// Error codes, the thread's last message, and the failures that kernels leave on streams.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "accel.h"

namespace accel::driver {

// Sets this thread's message and returns `code`.
[[gnu::format(printf, 2, 3)]] accelError_t fail(accelError_t code, const char* format, ...);
accelError_t fail_with(accelError_t code, std::string text);

// For the catch clause of an entry point: turns the exception being handled into a code and
// message.
accelError_t fail_with_current_exception() noexcept;

// A kernel's failure. Streams that waited for the failing one share it; one of them raises it.
struct Failure {
  accelError_t code;
  std::string text;
  uint64_t order; // counts failures in the process
  std::atomic<bool> raised{false};
};

// The first failure of a stream that nobody has raised yet.
class FailureSlot {
 public:
  void note(accelError_t code, std::string text, uint64_t ticket);
  // Takes over a failure of another stream, which reached this one at `ticket`.
  void adopt(std::shared_ptr<Failure> failure, uint64_t ticket);
  // The failure at or before `up_to`, or null.
  std::shared_ptr<Failure> find(uint64_t up_to);
  void clear();

 private:
  std::atomic<bool> present_{false}; // lets find() skip the lock in the usual case
  std::mutex mutex_; // a leaf: nothing is called under it
  std::shared_ptr<Failure> failure_;
  uint64_t ticket_ = 0;
};

// Raises `failure` unless it is null or another thread was first.
accelError_t raise(const std::shared_ptr<Failure>& failure);

} // namespace accel::driver
