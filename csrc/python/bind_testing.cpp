// Instruments: fallbacks, waits, launches, held streams.
#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../aten/fallback.h"
#include "../aten/queued_operator.h"
#include "../driver/accel_trace.h"
#include "../runtime/allocator.h"
#include "../runtime/error.h"
#include "../runtime/host_allocator.h"
#include "../runtime/plant.h"
#include "../runtime/stream.h"
#include "bindings.h"

namespace accel::python {

namespace {

// A stream that waits for a word of pinned memory until release().
class StreamHold {
 public:
  explicit StreamHold(c10::Stream stream) : memory_(host_allocator()->allocate(sizeof(uint32_t))) {
    word().store(0);
    check(accelStreamWaitValue32(native(stream), memory_.get(), 1));
    // Released or collected, the word must outlive the stream's last look at it.
    host_allocator()->record_event(memory_.get(), memory_.get_context(), stream);
  }
  ~StreamHold() {
    release();
  }
  StreamHold(const StreamHold&) = delete;
  StreamHold& operator=(const StreamHold&) = delete;

  void release() {
    word().store(1, std::memory_order_release);
  }

 private:
  std::atomic_ref<uint32_t> word() const {
    return std::atomic_ref<uint32_t>(*static_cast<uint32_t*>(memory_.get()));
  }

  at::DataPtr memory_;
};

std::map<std::string, uint64_t> wait_counts() {
  std::map<std::string, uint64_t> counts;
  accelForEachWait(
      [](const char* caller, uint64_t count, void* user) {
        (*static_cast<std::map<std::string, uint64_t>*>(user))[caller] += count;
      },
      &counts);
  return counts;
}

// Names and costs of the launches that are enqueued while it lives.
class LaunchLog {
 public:
  // Bytes by accelLevel*, operations by accelFlops*; -1 is unknown.
  using Cost = std::
      tuple<std::string, std::array<int64_t, accelLevels>, std::array<int64_t, accelFlopsClasses>>;

  LaunchLog() {
    accelSubscriber subscriber{};
    subscriber.size = sizeof(subscriber);
    subscriber.phases = 1u << accelTraceEnqueue;
    subscriber.user = this;
    subscriber.callback = [](const accelTraceEvent* event, void* user) {
      auto& log = *static_cast<LaunchLog*>(user);
      const std::lock_guard lock(log.mutex_);
      log.names_.emplace_back(event->info->name);
      auto& [name, bytes, flops] = log.costs_.emplace_back();
      name = event->info->name;
      std::copy_n(event->info->bytes, bytes.size(), bytes.begin());
      std::copy_n(event->info->flops, flops.size(), flops.begin());
      return accelSuccess;
    };
    check(accelTraceSubscribe(&subscriber, &id_));
  }
  ~LaunchLog() {
    stop();
  }
  LaunchLog(const LaunchLog&) = delete;
  LaunchLog& operator=(const LaunchLog&) = delete;

  std::vector<std::string> stop() {
    if (id_ != 0) {
      accelTraceUnsubscribe(std::exchange(id_, 0));
    }
    return std::exchange(names_, {});
  }

  std::vector<Cost> costs() {
    const std::lock_guard lock(mutex_);
    return costs_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> names_;
  std::vector<Cost> costs_;
  uint64_t id_ = 0;
};

} // namespace

void bind_testing(py::module_& m) {
  py::class_<LaunchLog>(m, "_LaunchLog", py::module_local())
      .def("costs", &LaunchLog::costs, py::call_guard<py::gil_scoped_release>())
      .def("stop", &LaunchLog::stop, py::call_guard<py::gil_scoped_release>());
  py::class_<StreamHold>(m, "_StreamHold", py::module_local()).def("release", &StreamHold::release);

  def(m, "_shape_function_operators", [] {
    std::vector<std::string> names;
    for (const auto& row : shape_rows()) {
      names.emplace_back(row.op);
    }
    return names;
  });
  def(m, "_misplaced_results", &misplaced_results);
  def(m, "_fallback_counts", &fallback_counts);
  def(m, "_reset_fallback_counts", &reset_fallback_counts);
  def(m, "_fallback_mode", &fallback_mode);
  def(m, "_set_fallback_mode", [](const std::string& mode) { set_fallback_mode(mode); });
  def(m, "_hold_stream", [](c10::Stream stream) { return std::make_unique<StreamHold>(stream); });
  // A stream that torch did not make, as a library with the driver's interface has it.
  def(m, "_create_driver_stream", [](int index, int priority) {
    lazy_init();
    accelStream_t stream = nullptr;
    check(accelStreamCreate(index, priority, &stream));
    return reinterpret_cast<uintptr_t>(stream);
  });
  def(m, "_launch_blocking", [] { return accelGetLaunchBlocking() != 0; });
  def(m, "_set_launch_blocking", [](bool on) { accelSetLaunchBlocking(on ? 1 : 0); });
  def(m, "_wait_counts", &wait_counts);
  def(m, "_log_launches", [] { return std::make_unique<LaunchLog>(); });
  def(m, "_plant", &plant);
  def(m, "_stream_wait_value", [](c10::Stream stream, intptr_t address, uint32_t value) {
    check(accelStreamWaitValue32(native(stream), reinterpret_cast<void*>(address), value));
  });
  def(m, "_leaked_workspace_bytes", &leaked_workspace_bytes);
}

} // namespace accel::python
