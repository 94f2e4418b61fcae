#include "unwritten.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <unordered_map>

#include "../driver/accel_trace.h"
#include "../runtime/error.h"

namespace accel::sanitizer {

namespace {

// Disjoint ranges, by their first bytes.
class Ranges {
 public:
  void remove(uintptr_t begin, uintptr_t end) {
    auto it = ranges_.upper_bound(begin);
    if (it != ranges_.begin() && std::prev(it)->second > begin) {
      --it;
    }
    while (it != ranges_.end() && it->first < end) {
      const auto [first, last] = *it;
      it = ranges_.erase(it);
      if (first < begin) {
        ranges_.emplace(first, begin);
      }
      if (last > end) {
        ranges_.emplace(end, last);
      }
    }
  }
  void add(uintptr_t begin, uintptr_t end) {
    remove(begin, end);
    ranges_.emplace(begin, end);
  }
  std::vector<Range> within(uintptr_t begin, uintptr_t end) const {
    std::vector<Range> found;
    auto it = ranges_.upper_bound(begin);
    if (it != ranges_.begin()) {
      --it;
    }
    for (; it != ranges_.end() && it->first < end; ++it) {
      if (it->second > begin) {
        found.emplace_back(std::max(it->first, begin), std::min(it->second, end));
      }
    }
    return found;
  }

 private:
  std::map<uintptr_t, uintptr_t> ranges_;
};

// An allocation takes place on its stream behind what was enqueued then, since launches before may
// still use the memory for its last owner; another stream's launch that touches it comes later.
struct Allocation {
  accelStream_t stream;
  uint64_t after;
  Range range;
};

struct Tracked {
  std::mutex mutex; // a leaf
  std::unordered_map<accelStream_t, uint64_t> enqueued;
  std::vector<Allocation> pending;
  Ranges ranges;
};

Tracked& tracked() {
  static auto* const tracked = new Tracked();
  return *tracked;
}

std::atomic<bool> g_tracks{false};
thread_local int t_running = 0; // launches, and nodes in them, that this worker is in
thread_local bool t_exact = false; // the launch has said what it wrote

Range range_of(const accelAccess& access) {
  const auto begin = reinterpret_cast<uintptr_t>(access.address);
  return {begin, begin + access.bytes};
}

bool touches(const accelLaunchInfo& info, const Range& range) {
  return std::any_of(info.accesses, info.accesses + info.num_accesses, [&](const auto& access) {
    const auto [begin, end] = range_of(access);
    return begin < range.second && range.first < end;
  });
}

void begin(Tracked& all, const accelTraceEvent& event) {
  auto& pending = all.pending;
  const auto due = [&](const Allocation& one) {
    return one.stream == event.stream ? one.after < event.ticket : touches(*event.info, one.range);
  };
  for (const auto& one : pending) {
    if (due(one)) {
      all.ranges.add(one.range.first, one.range.second);
    }
  }
  pending.erase(std::remove_if(pending.begin(), pending.end(), due), pending.end());
}

void mark(Tracked& all, const accelLaunchInfo& info) {
  for (uint32_t i = 0; i < info.num_accesses; ++i) {
    const auto& access = info.accesses[i];
    if ((access.mode & accelAccessWrite) == 0) {
      continue;
    }
    const auto [first, last] = range_of(access);
    if (access.run == 0 || access.pitch == 0) {
      all.ranges.remove(first, last);
      continue;
    }
    for (uintptr_t at = first; at < last; at += access.pitch) {
      all.ranges.remove(at, std::min(at + access.run, last));
    }
  }
}

accelError_t on_event(const accelTraceEvent* event, void* user) {
  auto& all = *static_cast<Tracked*>(user);
  const std::lock_guard lock(all.mutex);
  switch (event->phase) {
    case accelTraceEnqueue:
      all.enqueued[event->stream] = event->ticket;
      break;
    case accelTraceBegin:
      ++t_running;
      begin(all, *event);
      break;
    case accelTraceEnd:
      if (!t_exact) {
        mark(all, *event->info);
      }
      t_exact = false;
      t_running -= t_running > 0 ? 1 : 0; // one that began before all this is not counted
      break;
    case accelTraceAllocate: {
      const auto first = reinterpret_cast<uintptr_t>(event->address);
      if (event->stream == nullptr) { // pinned
        break;
      }
      if (t_running > 0) { // by the launch itself, which writes it
        all.ranges.remove(first, first + event->bytes);
      } else {
        all.pending.push_back(
            {event->stream, all.enqueued[event->stream], {first, first + event->bytes}});
      }
      break;
    }
    default:
      break;
  }
  return accelSuccess;
}

} // namespace

void track_unwritten() {
  if (g_tracks.exchange(true)) {
    return;
  }
  accelSubscriber subscriber{};
  subscriber.size = sizeof(subscriber);
  subscriber.phases = 1u << accelTraceEnqueue | 1u << accelTraceBegin | 1u << accelTraceEnd |
      1u << accelTraceAllocate;
  subscriber.callback = on_event;
  subscriber.user = &tracked();
  uint64_t id = 0;
  check(accelTraceSubscribe(&subscriber, &id));
}

std::vector<Range> unwritten(uintptr_t begin, uint64_t bytes) {
  auto& all = tracked();
  const std::lock_guard lock(all.mutex);
  return all.ranges.within(begin, begin + bytes);
}

void wrote_only(const std::vector<Range>& ranges) {
  auto& all = tracked();
  const std::lock_guard lock(all.mutex);
  for (const auto& [begin, end] : ranges) {
    all.ranges.remove(begin, end);
  }
  t_exact = true;
}

} // namespace accel::sanitizer
