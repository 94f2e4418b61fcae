// What the caching allocator notes of itself for torch.accel.memory._snapshot: a ring of trace
// entries per device and the stacks of allocations and frees, in torch.cuda's terms. Off by
// default; an allocation then pays for one relaxed load.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "stream.h"

namespace accel {

using c10::CachingDeviceAllocator::AnnotationEntry;
using c10::CachingDeviceAllocator::RecordContext;
using c10::CachingDeviceAllocator::SegmentInfo;
using c10::CachingDeviceAllocator::TraceEntry;
using Context = std::shared_ptr<c10::GatheredContext>; // a captured stack, or null

struct HistoryOptions {
  bool enabled = false;
  RecordContext stacks = RecordContext::NEVER;
  bool cpp_stacks = false;
  size_t max_entries = 1; // per device; the newest are kept
  bool clear = false;
  bool annotations = false; // of all threads; false: of the calling one
  bool compile_context = false;
  std::vector<TraceEntry::Action> skip;
};

// For all devices. Turning it off forgets the entries.
void record_history(const HistoryOptions& options);
bool history_enabled();
// Goes into every entry from now on; "" for nothing.
void set_history_metadata(const std::string& text);
std::string history_metadata();

inline std::atomic<RecordContext> g_recorded_stacks{RecordContext::NEVER};
Context gather_context();
// The Python and, if asked for, C++ stack of this thread, or of the caller a worker acts for, where
// stacks of that level are recorded. May take the GIL: called with nothing locked.
inline Context context_for(RecordContext level) {
  return C10_LIKELY(g_recorded_stacks.load(std::memory_order_relaxed) < level) ? nullptr
                                                                               : gather_context();
}

// At most `limit` entries: the newest.
template <class Entry>
class Ring {
 public:
  void configure(size_t limit, bool clear) {
    auto kept = clear ? std::vector<Entry>() : entries();
    kept.erase(kept.begin(), kept.end() - static_cast<ptrdiff_t>(std::min(kept.size(), limit)));
    entries_ = std::move(kept);
    limit_ = limit;
    next_ = 0;
  }
  void add(Entry entry) {
    if (entries_.size() < limit_) {
      entries_.push_back(std::move(entry));
    } else if (limit_ > 0) {
      entries_[next_] = std::move(entry);
      next_ = (next_ + 1) % limit_;
    }
  }
  // Oldest first.
  std::vector<Entry> entries() const {
    std::vector<Entry> list(entries_.begin() + static_cast<ptrdiff_t>(next_), entries_.end());
    list.insert(list.end(), entries_.begin(), entries_.begin() + static_cast<ptrdiff_t>(next_));
    return list;
  }

 private:
  std::vector<Entry> entries_;
  size_t limit_ = 0;
  size_t next_ = 0; // the oldest, once the ring is full
};

// The entries of one device. The owner's lock guards it.
class History {
 public:
  explicit History(c10::DeviceIndex index) : index_(index) {}

  void configure(const HistoryOptions& options);
  void set_metadata(const std::string& text) {
    metadata_ = text;
  }
  const std::string& metadata() const {
    return metadata_;
  }
  void record(
      TraceEntry::Action action,
      const void* address,
      size_t size,
      accelStream_t stream,
      c10::MempoolId_t pool,
      const Context& context) {
    if (C10_UNLIKELY(enabled_)) {
      add(action, reinterpret_cast<size_t>(address), size, stream, pool, context);
    }
  }
  // The stack of the last free that covered the address, if it is still there.
  Context last_free(const void* address) const;
  // Oldest first; times are in TraceEntry::approx_t_.
  std::vector<TraceEntry> entries() const {
    return ring_.entries();
  }

 private:
  void add(
      TraceEntry::Action action,
      size_t address,
      size_t size,
      accelStream_t stream,
      c10::MempoolId_t pool,
      const Context& context);

  const c10::DeviceIndex index_;
  bool enabled_ = false;
  uint32_t skipped_ = 0; // a bit for each action
  std::string metadata_;
  Ring<TraceEntry> ring_;
};

struct Snapshot {
  std::vector<SegmentInfo> segments;
  std::vector<std::vector<TraceEntry>> traces; // of each device; times in TraceEntry::t_, us
  std::vector<AnnotationEntry> annotations;
};

// Of all devices; of private pool `only` where that is not the general one.
Snapshot take_snapshot(c10::MempoolId_t only, bool include_traces);

} // namespace accel
