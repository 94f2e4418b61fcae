#include "sync_debug.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <string_view>

#include "stream.h"

namespace accel {

namespace {

std::atomic<SyncDebugMode> g_mode{SyncDebugMode::kDefault};
std::atomic<bool> g_watched{false};
std::atomic<WaitObserver> g_observer{nullptr};

} // namespace

SyncDebugMode sync_debug_mode() {
  return g_mode.load(std::memory_order_relaxed);
}

void set_sync_debug_mode(SyncDebugMode mode) {
  g_mode.store(mode, std::memory_order_relaxed);
}

void set_wait_observer(WaitObserver observer) {
  g_observer.store(observer, std::memory_order_release);
}

void watch_waits(bool on) {
  g_watched.store(on, std::memory_order_relaxed);
}

void note_sync(const char* caller) {
  note_sync(caller, caller);
}

void note_sync(const char* operation, const char* caller) {
  const auto mode = sync_debug_mode();
  if (C10_LIKELY(mode == SyncDebugMode::kDefault && !g_watched.load(std::memory_order_relaxed))) {
    return;
  }
  const auto observer = g_observer.load(std::memory_order_acquire);
  const std::string stack = observer == nullptr ? std::string() : observer(operation, caller);
  if (mode == SyncDebugMode::kDefault) {
    return;
  }
  std::string text = c10::str("called a synchronizing accel operation: ", operation);
  if (std::string_view(operation) != caller) {
    text += c10::str(" (", caller, ")");
  }
  text += stack;
  TORCH_CHECK(mode == SyncDebugMode::kWarn, text);
  TORCH_WARN(text, stack.empty() ? "" : "\n"); // torch adds where it was triggered
}

} // namespace accel
