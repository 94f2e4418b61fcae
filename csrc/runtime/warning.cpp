#include "warning.h"

#include <atomic>
#include <mutex>
#include <vector>

namespace accel {

namespace {

class Collector final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    std::lock_guard<std::mutex> lock(mutex_);
    warnings_.push_back(warning);
    pending_.store(true, std::memory_order_release);
  }

  void emit() {
    if (C10_LIKELY(!pending_.load(std::memory_order_relaxed))) {
      return;
    }
    std::vector<c10::Warning> taken;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      taken.swap(warnings_);
      pending_.store(false, std::memory_order_relaxed);
    }
    for (const auto& warning : taken) { // outside the lock: the handler may take the GIL
      c10::warn(warning);
    }
  }

 private:
  std::mutex mutex_;
  std::vector<c10::Warning> warnings_;
  std::atomic<bool> pending_{false};
};

Collector& collector() {
  static auto* instance = new Collector(); // leaked: workers may outlive static destructors
  return *instance;
}

} // namespace

CollectWarnings::CollectWarnings() : guard_(&collector()) {}

void emit_collected_warnings() {
  collector().emit();
}

} // namespace accel
