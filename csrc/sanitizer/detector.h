// The detector's state, and what it does at each event of the chip's trace.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "../driver/accel_trace.h"
#include "clock.h"
#include "report.h"
#include "shadow.h"

namespace accel::sanitizer {

// All members may be called by several threads. The mutex is a leaf: nothing is called under it
// that locks or takes the GIL.
class Detector {
 public:
  // The race of a launch that is about to be enqueued or captured; for a node of a graph,
  // `event.capture` is 0 and the stream that of the launch.
  std::optional<Race> check(const accelTraceEvent& event, std::shared_ptr<const Origin> origin);
  // All other events. `origin` is of the Launch before, on the same thread.
  void apply(const accelTraceEvent& event, const std::shared_ptr<const Origin>& origin);
  std::optional<Race> check_host(const Access& access);
  // Whether a launch has touched pinned memory.
  bool watches_host() const {
    return watches_host_.load(std::memory_order_relaxed);
  }
  size_t remembered_accesses();
  size_t remembered_clocks();

 private:
  // A capture: its nodes' clocks, in which a stream's timeline is of node numbers, and what they
  // touch.
  struct Capture {
    std::vector<Clock> nodes;
    Shadow memory;

    Clock after(const uint32_t* dependencies, uint32_t count) const;
  };

  StreamIndex index_of(accelStream_t stream);
  const char* intern(const char* name);
  Capture& capture(uint64_t id);
  Access make_access(const accelAccess& access, StreamIndex stream, uint64_t ticket);
  template <class Visit>
  void for_each_access(const accelTraceEvent& event, uint64_t ticket, Visit&& visit);
  Race make_race(const Access& first, const Access& second, const Shadow& memory) const;
  void record(const accelTraceEvent& event, const std::shared_ptr<const Origin>& origin);
  void record_node(const accelTraceEvent& event, const std::shared_ptr<const Origin>& origin);
  void change_memory(const accelTraceEvent& event);

  std::mutex mutex_;
  Order order_;
  Shadow memory_;
  std::map<uint64_t, Capture> captures_; // the newest ones
  std::unordered_map<accelStream_t, StreamIndex> indices_;
  std::vector<accelStream_t> streams_;
  std::unordered_map<uint64_t, std::shared_ptr<const Origin>> nodes_; // by correlation id
  std::deque<uint64_t> node_order_;
  std::unordered_set<std::string> names_;
  std::atomic<bool> watches_host_{false};
};

} // namespace accel::sanitizer
