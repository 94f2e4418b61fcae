// Graphs as torch has them: torch.accel.AccelGraph, and torch.accelerator.Graph through
// REGISTER_GRAPH_IMPL. The meaning and the texts are CUDAGraph's.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/GraphImplInterface.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../driver/accel_graph.h"
#include "graph_rng.h"
#include "stream.h"

namespace accel {

// A captured launch, for those who look at a graph.
struct GraphNode {
  std::string name;
  accelEngine engine;
  int64_t stream; // id of the torch stream that captured it
  std::vector<uint32_t> dependencies; // indices of the nodes that must end first
};

class Graph final : public at::GraphImplInterface {
 public:
  explicit Graph(const at::GraphImplArgs& args = {});
  ~Graph() override;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void capture_begin(
      c10::MempoolId_t pool = {0, 0},
      at::GraphCaptureMode mode = at::GraphCaptureMode::Default) override;
  void capture_end() override;
  void instantiate() override;
  void replay() override;
  // Waits until no replay is unfinished, since their memory may go to others.
  void reset() override;
  c10::MempoolId_t pool() const override;
  void enable_debug_mode() override;
  // Writes the graph in the language of Graphviz.
  void debug_dump(const std::string& path) override;

  void register_generator_state(const at::Generator& generator);
  // In the order of capture. Requires the graph to be kept, by keep_graph or debug mode.
  std::vector<GraphNode> nodes() const;

 private:
  void end_pools();
  void release_pools();

  const bool keep_graph_;
  bool debug_ = false;
  std::optional<c10::Stream> stream_; // of the capture
  uint64_t capture_ = 0; // its id while it is under way
  c10::MempoolId_t pool_{0, 0};
  bool capture_ended_ = false;
  accelGraph_t graph_ = nullptr;
  accelGraphExec_t exec_ = nullptr;
  std::shared_ptr<GraphRng> rng_ = std::make_shared<GraphRng>();
};

} // namespace accel
