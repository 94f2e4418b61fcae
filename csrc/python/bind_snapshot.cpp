// The history and the snapshot of device memory, as the dictionaries that torch.cuda makes.
#include <c10/core/AllocatorConfig.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <algorithm>
#include <optional>
#include <string>

#include "../runtime/allocator_heap.h"
#include "../runtime/allocator_history.h"
#include "bindings.h"

namespace accel::python {

namespace {

using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;

// Symbolizing many stacks at once is much cheaper than one by one.
class Frames {
 public:
  void add(const py::dict& target, const Context& context) {
    if (auto* const stack = dynamic_cast<torch::CapturedTraceback*>(context.get())) {
      stacks_.push_back(stack);
      targets_.push_back(target);
    } else {
      target["frames"] = py::list();
    }
  }

  void symbolize() {
    const auto symbolized = torch::symbolize(stacks_);
    std::vector<py::dict> frames; // shared, so that they stay shared in a pickle
    for (const auto& frame : symbolized.all_frames) {
      py::dict& d = frames.emplace_back();
      d["name"] = frame.funcname;
      d["filename"] = frame.filename;
      d["line"] = frame.lineno;
    }
    for (size_t i = 0; i < targets_.size(); ++i) {
      py::list list;
      for (const auto index : symbolized.tracebacks.at(i)) {
        list.append(frames.at(index));
      }
      targets_[i]["frames"] = list;
    }
  }

 private:
  std::vector<torch::CapturedTraceback*> stacks_;
  std::vector<py::dict> targets_;
};

const char* name_of(TraceEntry::Action action) {
  switch (action) {
    case TraceEntry::ALLOC:
      return "alloc";
    case TraceEntry::FREE_REQUESTED:
      return "free_requested";
    case TraceEntry::FREE_COMPLETED:
      return "free_completed";
    case TraceEntry::SEGMENT_ALLOC:
      return "segment_alloc";
    case TraceEntry::SEGMENT_FREE:
      return "segment_free";
    case TraceEntry::SNAPSHOT:
      return "snapshot";
    case TraceEntry::OOM:
      return "oom";
    default:
      TORCH_CHECK(false, "accel: unexpected action in the history of the allocator");
  }
}

// torch.cuda has a raw pointer here; 0 is the default stream there and here.
c10::StreamId stream_id(void* stream) {
  return stream == nullptr ? 0 : from_native(static_cast<accelStream_t>(stream)).id();
}

const char* state_of(const c10::CachingDeviceAllocator::BlockInfo& block) {
  return block.allocated ? "active_allocated" : block.active ? "active_pending_free" : "inactive";
}

py::dict as_dict(const SegmentInfo& segment, Frames& frames) {
  py::dict d;
  d["device"] = segment.device;
  d["address"] = segment.address;
  d["total_size"] = segment.total_size;
  d["allocated_size"] = segment.allocated_size;
  d["active_size"] = segment.active_size;
  d["requested_size"] = segment.requested_size;
  d["stream"] = stream_id(segment.stream);
  d["segment_type"] = segment.is_large ? "large" : "small";
  d["segment_pool_id"] = segment.owner_private_pool_id;
  d["is_expandable"] = segment.is_expandable;
  frames.add(d, segment.context_when_allocated);
  py::list blocks;
  auto address = segment.address;
  for (const auto& block : segment.blocks) {
    py::dict entry;
    entry["address"] = address;
    entry["size"] = block.size;
    entry["requested_size"] = block.requested_size;
    entry["state"] = state_of(block);
    frames.add(entry, block.context_when_allocated);
    blocks.append(entry);
    address += block.size;
  }
  d["blocks"] = blocks;
  return d;
}

py::dict as_dict(const TraceEntry& entry, Frames& frames) {
  py::dict d;
  d["action"] = name_of(entry.action_);
  d[entry.action_ == TraceEntry::OOM ? "device_free" : "addr"] = entry.addr_;
  d["size"] = entry.size_;
  d["stream"] = stream_id(entry.stream_);
  d["time_us"] = entry.time_.t_;
  d["compile_context"] = entry.compile_context_;
  d["user_metadata"] = entry.user_metadata_;
  d["pool_id"] = entry.mempool_;
  frames.add(d, entry.context_);
  return d;
}

py::dict as_dict(const AnnotationEntry& annotation) {
  py::dict d;
  for (const auto& [key, value] : annotation.metadata_) {
    d[py::str(key)] = value;
  }
  d["device"] = annotation.device_;
  d["time_us"] = annotation.time_.t_;
  return d;
}

py::dict allocator_settings() {
  py::dict d;
  const auto text = Config::instance().last_allocator_settings();
  d["PYTORCH_ALLOC_CONF"] = text;
  d["max_split_size"] = static_cast<int64_t>(Config::max_split_size());
  d["garbage_collection_threshold"] = Config::garbage_collection_threshold();
  d["expandable_segments"] = false;
  py::dict divisions;
  const auto list = Config::roundup_power2_divisions();
  for (size_t i = 0; i < list.size(); ++i) {
    divisions[py::str(std::to_string(size_t{1} << i))] = list[i];
  }
  d["roundup_power2_divisions"] = divisions;
  return d;
}

py::dict snapshot(c10::MempoolId_t pool, bool include_traces) {
  const auto taken = [&] {
    py::gil_scoped_release no_gil;
    return take_snapshot(pool, include_traces);
  }();
  Frames frames;
  py::list segments;
  for (const auto& segment : taken.segments) {
    segments.append(as_dict(segment, frames));
  }
  py::list traces;
  for (const auto& entries : taken.traces) {
    py::list trace;
    for (const auto& entry : entries) {
      trace.append(as_dict(entry, frames));
    }
    traces.append(trace);
  }
  py::list annotations;
  for (const auto& annotation : taken.annotations) {
    annotations.append(as_dict(annotation));
  }
  frames.symbolize();
  py::dict d;
  d["segments"] = segments;
  d["device_traces"] = traces;
  d["allocator_settings"] = allocator_settings();
  d["external_annotations"] = annotations;
  return d;
}

void check_option(
    const std::string& value,
    std::initializer_list<const char*> accepted,
    const char* message) {
  TORCH_CHECK(std::find(accepted.begin(), accepted.end(), value) != accepted.end(), message);
}

// The arguments and messages of torch._C._cuda_record_memory_history.
void record(
    const std::optional<std::string>& enabled,
    const std::optional<std::string>& context,
    const std::string& stacks,
    size_t max_entries,
    bool clear_history,
    bool compile_context,
    bool global_record_annotations,
    const std::vector<std::string>& skip_actions) {
  if (enabled) {
    check_option(*enabled, {"state", "all"}, "expected state to be 'state', 'all', or None");
  }
  if (context) {
    check_option(
        *context,
        {"state", "alloc", "all"},
        "expected context to be 'state', 'alloc', 'all', or None");
  }
  check_option(stacks, {"python", "all"}, "expected stacks to be 'python', or 'all'");
  HistoryOptions options;
  options.enabled = enabled.has_value();
  options.cpp_stacks = stacks == "all";
  options.max_entries = enabled == "all" ? max_entries : 1;
  options.stacks = !context ? RecordContext::NEVER
      : *context == "state" ? RecordContext::STATE
      : *context == "alloc" ? RecordContext::ALLOC
                            : RecordContext::ALL;
  options.clear = clear_history;
  options.compile_context = compile_context;
  options.annotations = global_record_annotations;
  for (const auto& action : skip_actions) {
    options.skip.push_back(c10::CachingDeviceAllocator::parseTraceEntryAction(action));
  }
  record_history(options);
}

py::object owner(uintptr_t address) {
  const auto found = [&] {
    py::gil_scoped_release no_gil;
    return owner_of(reinterpret_cast<const void*>(address));
  }();
  if (!found) {
    return py::none();
  }
  Frames frames;
  py::dict d;
  d["device"] = found->device;
  d["segment"] = found->segment;
  d["segment_size"] = found->segment_size;
  d["address"] = found->address;
  d["size"] = found->block.size;
  d["requested_size"] = found->block.requested_size;
  d["state"] = state_of(found->block);
  d["stream"] = stream_id(found->stream);
  d["pool_id"] = found->pool;
  frames.add(d, found->block.context_when_allocated);
  frames.symbolize();
  return d;
}

} // namespace

void bind_snapshot(py::module_& m) {
  def(m, "_record_memory_history", &record);
  def(m, "_is_history_enabled", &history_enabled);
  def(m, "_set_memory_metadata", &set_history_metadata);
  def(m, "_get_memory_metadata", &history_metadata);
  m.def("_memory_snapshot", torch::wrap_pybind_function(&snapshot));
  m.def("_memory_owner", torch::wrap_pybind_function(&owner));
}

} // namespace accel::python
