#include "fallback.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <unordered_map>

#include "../runtime/device.h"
#include "run_on_cpu.h"

namespace accel {

namespace {

// ---- Counting and forbidding

enum class Mode { kAllow, kWarn, kError };

Mode parse_mode(const std::string& text) {
  if (text == "allow") {
    return Mode::kAllow;
  }
  if (text == "warn") {
    return Mode::kWarn;
  }
  if (text == "error") {
    return Mode::kError;
  }
  TORCH_CHECK(false, "accel: ACCEL_FALLBACK='", text, "' is not one of allow, warn, error");
}

std::atomic<Mode>& mode() {
  static std::atomic<Mode> value = [] {
    const char* text = std::getenv("ACCEL_FALLBACK");
    return text == nullptr ? Mode::kAllow : parse_mode(text);
  }();
  return value;
}

struct Counts {
  std::mutex mutex;
  std::unordered_map<c10::OperatorName, int64_t> by_operator;
};

Counts& counts() {
  static auto* instance = new Counts(); // leaked: used by threads at exit
  return *instance;
}

void count(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name();
  auto& c = counts();
  int64_t times = 0;
  {
    std::lock_guard<std::mutex> lock(c.mutex);
    times = ++c.by_operator[name];
  }
  const auto current = mode().load(std::memory_order_relaxed);
  TORCH_CHECK_NOT_IMPLEMENTED(
      current != Mode::kError,
      "accel: ",
      name,
      " has no kernel for accel, and ACCEL_FALLBACK=error forbids to run the CPU's; set "
      "ACCEL_FALLBACK=allow");
  if (current == Mode::kWarn && times == 1) {
    TORCH_WARN("accel: ", name, " runs its CPU kernel on device memory (ACCEL_FALLBACK=warn)");
  }
}

// Torch's own error about an operator that the CPU lacks for this layout, with the device's name.
[[noreturn]] void
raise_missing(const c10::OperatorHandle& op, c10::DispatchKey key, torch::jit::Stack* stack) {
  std::string text;
  try {
    op.redispatchBoxed(c10::DispatchKeySet(key), stack);
  } catch (const c10::NotImplementedError& error) {
    text = error.what_without_backtrace();
  }
  const std::string cpu = std::string("'") + c10::toString(key) + "'"; // 'SparseCPU'
  const auto at = text.find(cpu);
  if (at != std::string::npos) {
    text.replace(at, cpu.size(), cpu.substr(0, cpu.size() - 4) + "Accel'");
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, text);
}

} // namespace

void set_fallback_mode(const std::string& text) {
  mode().store(parse_mode(text), std::memory_order_relaxed);
}

std::string fallback_mode() {
  constexpr const char* kNames[] = {"allow", "warn", "error"};
  return kNames[static_cast<int>(mode().load(std::memory_order_relaxed))];
}

std::vector<std::pair<std::string, int64_t>> fallback_counts() {
  std::vector<std::pair<std::string, int64_t>> result;
  {
    std::lock_guard<std::mutex> lock(counts().mutex);
    for (const auto& [name, times] : counts().by_operator) {
      result.emplace_back(c10::toString(name), times);
    }
  }
  std::sort(result.begin(), result.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  return result;
}

void reset_fallback_counts() {
  std::lock_guard<std::mutex> lock(counts().mutex);
  counts().by_operator.clear();
}

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  lazy_init(); // raises in a forked child, before any lock
  count(op);
  const auto key = cpu_keys(keys).highestPriorityTypeId();
  if (!op.hasComputedKernelForDispatchKey(key)) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        key != c10::DispatchKey::CPU,
        "accel: ",
        op.operator_name(),
        " has no kernel for accel, and none for the CPU that it could fall back on; move its "
        "operands with .cpu() and use an operator that the CPU has");
    raise_missing(op, key, stack);
  }
  run_on_cpu(op, keys, stack);
}

void fallback_declined(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  run_on_cpu(op, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), stack);
  count(op);
}

} // namespace accel
