#include "wait.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>

#include "os_linux.h"
#include "process.h"
#include "stream.h"
#include "worker.h"

namespace accel::driver {

void Completion::advance(uint64_t ticket) {
  value_.store(ticket);
  if (waiters_.load() != 0) {
    wake();
  }
}

void Completion::wake() {
  signal_.fetch_add(1);
  os::futex_wake_all(signal_);
}

bool Completion::spin(uint64_t ticket) const {
  for (int i = 0; i < kPauses && value() < ticket; ++i) {
    os::pause();
  }
  return value() >= ticket;
}

void Completion::park(uint64_t ticket, const std::atomic<uint32_t>& aborted) {
  for (int i = 0; i < kYields; ++i) {
    if (value() >= ticket || aborted.load() != 0) {
      return;
    }
    os::yield();
  }
  waiters_.fetch_add(1);
  while (true) {
    const uint32_t signal = signal_.load();
    if (value() >= ticket || aborted.load() != 0) {
      break;
    }
    os::futex_wait(signal_, signal, os::kForever);
  }
  waiters_.fetch_sub(1);
}

namespace {

struct WaitCounts {
  std::mutex mutex; // a leaf
  std::map<std::string, uint64_t> counts;
};

WaitCounts& wait_counts() {
  static WaitCounts* counts = new WaitCounts();
  return *counts;
}

// Replaced as a whole and never freed: a wait may be between its two hooks.
std::atomic<const accelWaitHooks*> g_hooks{nullptr};

accelError_t aborted(const Device& device) {
  return fail(
      accelErrorAborted,
      "accel: accel:%d was aborted, its queued work is lost; reset it to use it again",
      device.index);
}

} // namespace

namespace {

void count_wait(const char* caller) {
  WaitCounts& waits = wait_counts();
  std::lock_guard<std::mutex> lock(waits.mutex);
  ++waits.counts[caller];
}

} // namespace

void host_poll(const std::function<bool()>& look, const char* caller) {
  if (look()) {
    return;
  }
  count_wait(caller);
  const accelWaitHooks* hooks = g_hooks.load();
  void* token = hooks == nullptr ? nullptr : hooks->before();
  const std::atomic<uint32_t> nobody{0};
  for (uint64_t nap = 10'000; !look(); nap = std::min<uint64_t>(2 * nap, 1'000'000)) {
    os::futex_wait(nobody, 0, nap);
  }
  if (hooks != nullptr) {
    hooks->after(token);
  }
}

accelError_t host_wait(accelStream_t stream, uint64_t ticket, const char* caller, uint32_t since) {
  const Device& device = stream->device;
  if (stream->completion.value() < ticket) {
    if (stream_of_this_thread() != nullptr) {
      return fail(
          accelErrorNotSupported,
          "accel: %s: a kernel cannot wait for a stream; let the stream wait with an event",
          caller_or_unknown(caller));
    }
    if (!attach_worker(*stream)) {
      return fail(
          accelErrorOutOfMemory, "accel: the system has no thread left for a stream's worker");
    }
    if (caller != nullptr) {
      count_wait(caller);
    }
    if (!stream->completion.spin(ticket)) {
      const accelWaitHooks* hooks = g_hooks.load();
      void* token = hooks == nullptr ? nullptr : hooks->before();
      stream->completion.park(ticket, device.aborted);
      if (hooks != nullptr) {
        hooks->after(token); // may end this thread: see entry()
      }
    }
  }
  // The word first: see Device::reset.
  return device.aborted.load() != 0 || device.resets.load() != since ? aborted(device)
                                                                     : accelSuccess;
}

} // namespace accel::driver

using namespace accel::driver;

extern "C" accelError_t accelSetWaitHooks(const accelWaitHooks* hooks) {
  return frame([&] {
    if (hooks == nullptr) {
      g_hooks.store(nullptr);
      return accelSuccess;
    }
    if (hooks->size < sizeof(accelWaitHooks) || hooks->before == nullptr ||
        hooks->after == nullptr) {
      return invalid("accelSetWaitHooks", "size is too small or a hook is null");
    }
    g_hooks.store(new accelWaitHooks(*hooks));
    return accelSuccess;
  });
}

extern "C" void accelForEachWait(
    void (*visit)(const char* caller, uint64_t count, void* user),
    void* user) {
  (void)frame([&] {
    WaitCounts& waits = wait_counts();
    std::unique_lock<std::mutex> lock(waits.mutex);
    const std::map<std::string, uint64_t> counts = waits.counts;
    lock.unlock();
    for (const auto& [caller, count] : counts) {
      visit(caller.c_str(), count, user);
    }
    return accelSuccess;
  });
}
