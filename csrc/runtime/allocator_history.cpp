#include "allocator_history.h"

#include <ATen/record_function.h>
#include <c10/util/Exception.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <algorithm>
#include <mutex>
#include <string_view>

#include "allocator_heap.h"

namespace accel {

namespace {

std::atomic<bool> g_enabled{false};
std::atomic<bool> g_cpp_stacks{false};

// torch.profiler.record_function of the recorded threads.
struct Annotations {
  std::mutex mutex; // a leaf
  Ring<AnnotationEntry> ring;
};

Annotations& annotations() {
  static auto* const all = new Annotations(); // leaked: callbacks may run at exit
  return *all;
}

// Two readings of the clocks give the scale between them: the first is made when recording begins.
c10::ApproximateClockToUnixTimeConverter& clock_converter() {
  static c10::ApproximateClockToUnixTimeConverter converter;
  return converter;
}

// torch.compile's names of the regions that this thread is in.
thread_local std::vector<std::string> t_regions;

void annotate(const at::RecordFunction& function, const char* stage) {
  AnnotationEntry entry(current_device(), c10::getApproximateTime());
  entry.recordUserMetadata("name", function.name());
  entry.recordUserMetadata("stage", stage);
  auto& all = annotations();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.ring.add(std::move(entry));
}

bool is_region(const at::RecordFunction& function) {
  return std::string_view(function.name()).starts_with("Torch-Compiled Region");
}

at::RecordFunctionCallback annotation_callback() {
  using Observer = std::unique_ptr<at::ObserverContext>;
  return at::RecordFunctionCallback(
             [](const at::RecordFunction& function) -> Observer {
               annotate(function, "START");
               return nullptr;
             },
             [](const at::RecordFunction& function, at::ObserverContext*) {
               annotate(function, "END");
             })
      .scopes({at::RecordScope::USER_SCOPE});
}

at::RecordFunctionCallback region_callback() {
  using Observer = std::unique_ptr<at::ObserverContext>;
  return at::RecordFunctionCallback(
             [](const at::RecordFunction& function) -> Observer {
               if (is_region(function)) {
                 t_regions.emplace_back(function.name());
               }
               return nullptr;
             },
             [](const at::RecordFunction& function, at::ObserverContext*) {
               if (is_region(function) && !t_regions.empty()) {
                 t_regions.pop_back();
               }
             })
      .scopes({at::RecordScope::FUNCTION});
}

// The callbacks of the last record_history(); its calls come one at a time, under the mutex.
void set_callbacks(const HistoryOptions& options) {
  static std::mutex mutex;
  static auto* const installed = new std::vector<at::CallbackHandle>();
  std::lock_guard<std::mutex> lock(mutex);
  for (const auto handle : *installed) {
    at::removeCallback(handle);
  }
  installed->clear();
  const auto install = [&](const at::RecordFunctionCallback& callback) {
    installed->push_back(
        options.annotations ? at::addGlobalCallback(callback)
                            : at::addThreadLocalCallback(callback));
  };
  if (options.enabled) {
    install(annotation_callback());
    if (options.compile_context) {
      install(region_callback());
    }
  }
}

} // namespace

Context gather_context() {
  if (this_record().stream != nullptr) {
    return acting_for() != nullptr
        ? acting_for()->stack
        : nullptr; // a worker has no Python stack, and may not take the GIL
  }
  return torch::CapturedTraceback::gather(
      /*python=*/true, /*script=*/true, g_cpp_stacks.load(std::memory_order_relaxed));
}

void record_history(const HistoryOptions& options) {
  lazy_init();
  clock_converter();
  if (options.enabled && options.cpp_stacks) {
    torch::unwind::unwind(); // its first call reads the libraries' tables
  }
  set_callbacks(options);
  g_cpp_stacks = options.cpp_stacks;
  for (c10::DeviceIndex index = 0; index < device_count(); ++index) {
    auto& heap = heap_of(index);
    std::lock_guard<std::mutex> lock(heap.mutex);
    heap.history.configure(options);
  }
  {
    auto& all = annotations();
    std::lock_guard<std::mutex> lock(all.mutex);
    all.ring.configure(options.enabled ? options.max_entries : 0, options.clear);
  }
  g_enabled = options.enabled;
  g_recorded_stacks = options.enabled ? options.stacks : RecordContext::NEVER;
}

bool history_enabled() {
  return g_enabled;
}

void set_history_metadata(const std::string& text) {
  lazy_init();
  for (c10::DeviceIndex index = 0; index < device_count(); ++index) {
    auto& heap = heap_of(index);
    std::lock_guard<std::mutex> lock(heap.mutex);
    heap.history.set_metadata(text);
  }
}

std::string history_metadata() {
  lazy_init();
  auto& heap = heap_of(0);
  std::lock_guard<std::mutex> lock(heap.mutex);
  return heap.history.metadata();
}

void History::configure(const HistoryOptions& options) {
  enabled_ = options.enabled;
  skipped_ = 0;
  for (const auto action : options.skip) {
    skipped_ |= 1U << static_cast<unsigned>(action);
  }
  ring_.configure(options.enabled ? options.max_entries : 0, options.clear);
}

Context History::last_free(const void* address) const {
  const auto at = reinterpret_cast<size_t>(address);
  const auto list = ring_.entries();
  const auto found = std::find_if(list.rbegin(), list.rend(), [at](const TraceEntry& entry) {
    return entry.action_ == TraceEntry::FREE_REQUESTED && at - entry.addr_ < entry.size_;
  });
  return found == list.rend() ? nullptr : found->context_;
}

void History::add(
    TraceEntry::Action action,
    size_t address,
    size_t size,
    accelStream_t stream,
    c10::MempoolId_t pool,
    const Context& context) {
  if ((skipped_ >> static_cast<unsigned>(action) & 1U) != 0) {
    return;
  }
  const bool with_stack = g_recorded_stacks.load(std::memory_order_relaxed) >= RecordContext::ALLOC;
  ring_.add(TraceEntry(
      action,
      index_,
      address,
      size,
      stream,
      pool,
      c10::getApproximateTime(),
      with_stack ? context : nullptr,
      t_regions.empty() ? "N/A" : t_regions.back(),
      metadata_));
}

Snapshot take_snapshot(c10::MempoolId_t only, bool include_traces) {
  Snapshot snapshot;
  if (!is_initialized() || in_bad_fork()) {
    return snapshot;
  }
  for (c10::DeviceIndex index = 0; index < device_count(); ++index) {
    auto& heap = heap_of(index);
    std::lock_guard<std::mutex> lock(heap.mutex);
    heap.history.record(
        TraceEntry::SNAPSHOT, nullptr, heap.stats.active_bytes[0].current, nullptr, only, nullptr);
    heap.append_segments(snapshot.segments, only);
    snapshot.traces.push_back(include_traces ? heap.history.entries() : std::vector<TraceEntry>());
  }
  if (include_traces) {
    auto& all = annotations();
    std::lock_guard<std::mutex> lock(all.mutex);
    snapshot.annotations = all.ring.entries();
  }
  const auto to_nanoseconds = clock_converter().makeConverter();
  const auto to_microseconds = [&](auto& entry) {
    entry.time_.t_ = to_nanoseconds(entry.time_.approx_t_) / 1000;
  };
  for (auto& trace : snapshot.traces) {
    std::for_each(trace.begin(), trace.end(), to_microseconds);
  }
  std::for_each(snapshot.annotations.begin(), snapshot.annotations.end(), to_microseconds);
  return snapshot;
}

} // namespace accel
