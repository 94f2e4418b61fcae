// The error of a full device: what was asked for, what there is, and who has it.
#include <c10/util/Exception.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <sstream>
#include <string_view>

#include "allocator_heap.h"

namespace accel {

namespace {

using c10::CachingAllocator::format_size;

constexpr size_t kTenants = 5;
constexpr size_t kFrames = 4;

// The innermost Python frames.
void write_stack(std::ostream& text, const Context& context) {
  auto* const stack = dynamic_cast<torch::CapturedTraceback*>(context.get());
  if (stack == nullptr) {
    return;
  }
  const auto symbolized = torch::symbolize({stack});
  size_t written = 0;
  for (const auto index : symbolized.tracebacks.at(0)) {
    const auto& frame = symbolized.all_frames.at(index);
    const std::string_view file = frame.filename;
    if ((file.ends_with(".py") || file.starts_with('<')) && written++ < kFrames) {
      text << "\n    " << file << ":" << frame.lineno << " in " << frame.funcname;
    }
  }
}

std::string describe(const std::vector<Tenants>& tenants, bool with_stacks) {
  std::ostringstream text;
  for (size_t i = 0; i < tenants.size() && i < kTenants; ++i) {
    const auto& group = tenants[i];
    text << "\n  " << format_size(group.size * group.count) << ": " << group.count
         << (group.count == 1 ? " block of " : " blocks of ") << format_size(group.size)
         << " on stream " << from_native(group.stream).id();
    if (with_stacks) {
      write_stack(text, group.context);
    }
  }
  return text.str();
}

} // namespace

void throw_out_of_memory(
    Heap& heap,
    c10::DeviceIndex index,
    Request& request,
    const std::string& why) {
  size_t available = 0;
  size_t total = 0;
  accelMemGetInfo(index, &available, &total);
  size_t allocated = 0;
  size_t reserved = 0;
  size_t allowed = 0;
  size_t in_private_pools = 0;
  std::vector<Tenants> tenants;
  {
    std::lock_guard<std::mutex> lock(heap.mutex);
    ++heap.stats.num_ooms;
    allocated = heap.stats.allocated_bytes[0].current;
    reserved = heap.stats.reserved_bytes[0].current;
    allowed = heap.allowed;
    in_private_pools = heap.allocated_in_private_pools();
    tenants = heap.tenants();
    heap.route(request);
    heap.history.record(
        TraceEntry::OOM,
        reinterpret_cast<const void*>(available),
        request.requested,
        request.stream,
        request.owner == nullptr ? kGeneralPool : request.owner->id,
        request.context);
  }
  c10::reportOutOfMemoryToProfiler(
      static_cast<int64_t>(request.requested),
      allocated,
      reserved,
      c10::Device(kDeviceType, index));
  // A worker may not take the GIL, which turning a stack into text needs.
  const bool with_stacks = history_enabled() && request.record.stream == nullptr;
  const auto list = describe(tenants, with_stacks);
  TORCH_CHECK_WITH(
      OutOfMemoryError,
      false,
      "accel out of memory. Tried to allocate ",
      format_size(request.requested),
      ". Device accel:",
      static_cast<int>(index),
      " has a total capacity of ",
      format_size(total),
      " of which ",
      format_size(available),
      " is free. ",
      allowed < total ? format_size(allowed) + " is allowed to this process. " : "",
      format_size(allocated),
      " is allocated by torch_accel",
      in_private_pools > 0 ? " (" + format_size(in_private_pools) + " of it in private pools)" : "",
      ", ",
      format_size(reserved - allocated),
      " is reserved but unallocated. ",
      why.empty() ? "Raise ACCEL_MEMORY, free tensors, or call torch.accel.empty_cache()." : why,
      list.empty() ? "" : "\nThe largest blocks in use:",
      list,
      list.empty() || history_enabled()
          ? ""
          : "\ntorch.accel.memory._record_memory_history() shows where they were allocated.");
}

} // namespace accel
