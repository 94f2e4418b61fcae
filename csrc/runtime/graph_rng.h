// The random numbers of graphs, as Note [CUDA Graph-safe RNG states] of torch has them.
//
// A random call that is captured cannot know its key: each launch of the graph draws other numbers.
// It is given a cell and its own offset within the graph; a launch writes the generator's seed and
// offset into the cell before the nodes run, and moves the generator on by what the graph draws. So
// replays draw what the same calls would have drawn eagerly.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "../driver/accel_graph.h"
#include "generator.h"

namespace accel {

class GraphRng {
 public:
  // The numbers of the capture under way on the current stream of a device, or null.
  static std::shared_ptr<GraphRng> of_current_stream(c10::DeviceIndex index);
  // Connects a capture under way with its numbers; null disconnects.
  static void set(uint64_t capture_id, std::shared_ptr<GraphRng> rng);

  GraphRng() = default;
  ~GraphRng();
  GraphRng(const GraphRng&) = delete;
  GraphRng& operator=(const GraphRng&) = delete;

  void register_state(const std::shared_ptr<GeneratorState>& state);
  // What the next captured call draws with.
  CallKey reserve(const std::shared_ptr<GeneratorState>& state);
  // The offset, counted from the graph's first, of the next captured call.
  uint64_t offset(const std::shared_ptr<GeneratorState>& state);
  void set_offset(const std::shared_ptr<GeneratorState>& state, uint64_t offset);

  // What one launch writes; moves the generators on.
  std::vector<accelGraphWord> draw();

 private:
  struct Entry {
    std::shared_ptr<GeneratorState> state;
    RngCell* cell;
    uint64_t offset;
  };
  Entry& find(const std::shared_ptr<GeneratorState>& state);

  std::mutex mutex_; // before a state's
  std::vector<Entry> entries_;
};

} // namespace accel
