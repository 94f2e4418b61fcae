#include "error.h"

#include <cstdarg>
#include <cstdio>
#include <new>
#include <utility>

namespace accel::driver {

namespace {

// A plain pointer stays usable while the thread's other destructors run; the owner frees it last.
thread_local std::string* t_message = nullptr;

struct MessageOwner {
  ~MessageOwner() {
    delete std::exchange(t_message, nullptr);
  }
};

std::string& message() {
  thread_local MessageOwner owner;
  if (t_message == nullptr) {
    t_message = new std::string();
  }
  (void)owner;
  return *t_message;
}

std::atomic<uint64_t> g_failures{0};

} // namespace

accelError_t fail_with(accelError_t code, std::string text) {
  message() = std::move(text);
  return code;
}

accelError_t fail(accelError_t code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  va_list again;
  va_copy(again, arguments);
  const int length = std::vsnprintf(nullptr, 0, format, arguments);
  std::string text(static_cast<size_t>(length), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  va_end(arguments);
  return fail_with(code, std::move(text));
}

accelError_t fail_with_current_exception() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    try {
      return fail(
          accelErrorOutOfMemory, "accel: the host has no memory left for the chip's tables");
    } catch (...) {
      return accelErrorOutOfMemory;
    }
  } catch (const std::exception& error) {
    try {
      return fail(accelErrorNotSupported, "accel: %s", error.what());
    } catch (...) {
      return accelErrorNotSupported;
    }
  } catch (...) {
    return accelErrorNotSupported;
  }
}

void FailureSlot::note(accelError_t code, std::string text, uint64_t ticket) {
  auto failure = std::make_shared<Failure>();
  failure->code = code;
  failure->text = std::move(text);
  failure->order = g_failures.fetch_add(1);
  adopt(std::move(failure), ticket);
}

void FailureSlot::adopt(std::shared_ptr<Failure> failure, uint64_t ticket) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (failure_ == nullptr || failure_->raised.load()) {
    failure_ = std::move(failure);
    ticket_ = ticket;
    present_.store(true);
  }
}

std::shared_ptr<Failure> FailureSlot::find(uint64_t up_to) {
  if (!present_.load()) {
    return nullptr;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (failure_ != nullptr && failure_->raised.load()) {
    failure_ = nullptr;
    present_.store(false);
  }
  return failure_ != nullptr && ticket_ <= up_to ? failure_ : nullptr;
}

void FailureSlot::clear() {
  std::lock_guard<std::mutex> lock(mutex_);
  failure_ = nullptr;
  present_.store(false);
}

accelError_t raise(const std::shared_ptr<Failure>& failure) {
  if (failure == nullptr || failure->raised.exchange(true)) {
    return accelSuccess;
  }
  return fail_with(failure->code, failure->text);
}

} // namespace accel::driver

extern "C" const char* accelGetLastErrorMessage(void) {
  using accel::driver::t_message;
  return t_message == nullptr ? "" : t_message->c_str();
}
