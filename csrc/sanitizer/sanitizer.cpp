#include "sanitizer.h"

#include <c10/util/Exception.h>

#include <mutex>
#include <set>
#include <utility>

#include "../driver/accel_trace.h"
#include "../runtime/device.h"
#include "../runtime/error.h"
#include "detector.h"
#include "host_access.h"

namespace accel::sanitizer {

namespace {

constexpr size_t kReports = 1000; // kept

struct State {
  std::mutex switching; // held by enable() and disable()
  uint64_t subscription = 0;

  std::atomic<Mode> mode{Mode::kOff};
  std::mutex mutex; // of what follows; a leaf
  std::shared_ptr<Detector> detector;
  std::vector<Report> reports;
  std::set<std::pair<std::string, std::string>> warned; // the two lines of each warning
};

State& state() {
  static auto* const state = new State(); // leaked: used at exit
  return *state;
}

// Of the launch that this thread is about to enqueue.
thread_local std::shared_ptr<const Origin> t_origin;

std::string line_of(const Told& told) {
  const auto& stack = told.stack;
  return told.name +
      (stack.empty() ? "" : stack.back().file + ":" + std::to_string(stack.back().line));
}

// Keeps the report. True unless it is a warning that was given before.
bool keep(const Report& report) {
  auto& all = state();
  std::lock_guard<std::mutex> lock(all.mutex);
  const bool fresh = all.warned.emplace(line_of(report.first), line_of(report.second)).second;
  const bool told = fresh || all.mode.load() == Mode::kRaise;
  if (told && all.reports.size() < kReports) {
    all.reports.push_back(report);
  }
  return told;
}

accelError_t before_launch(Detector& detector, const accelTraceEvent& event) {
  if (event.info->num_accesses == 0) {
    return accelSuccess; // an event, or a launch that says nothing of its memory
  }
  const bool replayed = event.info->correlation != 0; // a node has an origin already
  if (!replayed) {
    t_origin = accelStreamOfThisThread(nullptr) == nullptr ? origin_of_this_call() : nullptr;
  }
  const auto race = detector.check(event, t_origin);
  if (detector.watches_host()) {
    watch_operators();
  }
  if (!race) {
    return accelSuccess;
  }
  const auto report = make_report(*race);
  if (!keep(report)) {
    return accelSuccess;
  }
  if (mode() == Mode::kRaise) {
    return accelTraceRefuse(report.text.c_str());
  }
  warn(report.text);
  return accelSuccess;
}

accelError_t on_event(const accelTraceEvent* event, void* user) {
  auto& detector = *static_cast<Detector*>(user);
  if (event->phase == accelTraceLaunch) {
    return before_launch(detector, *event);
  }
  const bool enqueued = event->phase == accelTraceEnqueue || event->phase == accelTraceCapture;
  detector.apply(*event, t_origin);
  if (enqueued && event->info->num_accesses != 0) {
    t_origin = nullptr;
  }
  return accelSuccess;
}

constexpr uint32_t bits(std::initializer_list<accelTracePhase> phases) {
  uint32_t mask = 0;
  for (const auto phase : phases) {
    mask |= 1u << phase;
  }
  return mask;
}

void unsubscribe(State& all) {
  all.mode.store(Mode::kOff);
  if (all.subscription != 0) {
    check(accelTraceUnsubscribe(std::exchange(all.subscription, 0)));
  }
  unwatch_operators();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.detector.reset(); // an operator under way may still hold it
}

std::shared_ptr<Detector> detector() {
  auto& all = state();
  std::lock_guard<std::mutex> lock(all.mutex);
  return all.detector;
}

} // namespace

Mode mode() {
  return state().mode.load(std::memory_order_relaxed);
}

void enable(Mode mode) {
  auto& all = state();
  if (in_bad_fork()) { // a callback that another thread was in has not ended, and never will
    all.mode.store(Mode::kOff);
    return;
  }
  std::lock_guard<std::mutex> lock(all.switching);
  if (mode == Mode::kOff) {
    unsubscribe(all);
    return;
  }
  if (all.subscription == 0) {
    const auto fresh = std::make_shared<Detector>();
    {
      std::lock_guard<std::mutex> also(all.mutex);
      all.detector = fresh;
    }
    accelSubscriber subscriber{};
    subscriber.size = sizeof(subscriber);
    subscriber.phases = bits(
        {accelTraceEnqueue,
         accelTraceLaunch,
         accelTraceCapture,
         accelTraceNode,
         accelTraceWait,
         accelTraceComplete,
         accelTraceAllocate,
         accelTraceRelease});
    subscriber.callback = &on_event;
    subscriber.user = fresh.get();
    check(accelTraceSubscribe(&subscriber, &all.subscription));
  }
  {
    std::lock_guard<std::mutex> also(all.mutex);
    all.warned.clear();
  }
  all.mode.store(mode);
}

void disable() {
  enable(Mode::kOff);
}

std::vector<Report> reports(bool clear) {
  auto& all = state();
  std::lock_guard<std::mutex> lock(all.mutex);
  if (!clear) {
    return all.reports;
  }
  all.warned.clear();
  return std::exchange(all.reports, {});
}

std::optional<std::string>
check_host_access(const at::Tensor& tensor, const char* name, bool write) {
  const auto access = pinned_access(tensor, name, write);
  const auto current = access ? detector() : nullptr;
  if (current == nullptr) {
    return std::nullopt;
  }
  auto race = current->check_host(*access);
  if (!race) {
    return std::nullopt;
  }
  race->second.access.origin = origin_of_this_call();
  race->tensor = c10::str(tensor.scalar_type(), tensor.sizes());
  const auto report = make_report(*race);
  return keep(report) ? std::optional<std::string>(report.text) : std::nullopt;
}

void host_access(const at::Tensor& tensor, const char* name, bool write) {
  if (mode() == Mode::kOff || in_bad_fork()) {
    return;
  }
  if (const auto text = check_host_access(tensor, name, write)) {
    TORCH_CHECK(mode() != Mode::kRaise, *text);
    warn(*text);
  }
}

Stats stats() {
  const auto current = detector();
  return current == nullptr
      ? Stats()
      : Stats{current->remembered_accesses(), current->remembered_clocks(), 1};
}

} // namespace accel::sanitizer
