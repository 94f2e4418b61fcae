#include "graph.h"

#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>
#include <c10/util/Logging.h>

#include <fstream>
#include <utility>

#include "allocator.h"
#include "error.h"
#include "host_allocator.h"
#include "warning.h"

namespace accel {

namespace {

accelCaptureMode to_driver(at::GraphCaptureMode mode) {
  switch (mode) {
    case at::GraphCaptureMode::ThreadLocal:
      return accelCaptureThreadLocal;
    case at::GraphCaptureMode::Relaxed:
      return accelCaptureRelaxed;
    case at::GraphCaptureMode::Default:
    case at::GraphCaptureMode::Global:
    default:
      return accelCaptureGlobal;
  }
}

} // namespace

Graph::Graph(const at::GraphImplArgs& args) : keep_graph_(args.keep_graph) {}

Graph::~Graph() {
  try {
    if (in_bad_fork()) {
      return;
    }
    if (capture_ != 0) { // forgotten: the stream must not capture for ever
      end_pools();
      accelStreamEndCapture(native(*stream_), &graph_);
      release_pools();
    }
    reset();
  } catch (const std::exception& error) {
    LOG(ERROR) << "accel: destroying a graph failed: " << error.what();
  }
}

void Graph::capture_begin(c10::MempoolId_t pool, at::GraphCaptureMode mode) {
  TORCH_CHECK(
      capture_ == 0 && !capture_ended_,
      "This AccelGraph instance already owns a captured graph. To capture a new graph, create a "
      "new "
      "instance.");
  const auto stream = current_stream();
  TORCH_CHECK(
      stream != default_stream(),
      "accel graphs must be captured on a non-default stream. (However, after capture, it's ok to "
      "replay them on the default stream.)");
  const auto index = stream.device_index();
  default_generator(index); // its first use seeds it, which a capture refuses
  check(accelStreamBeginCapture(native(stream), to_driver(mode)));
  const auto id = capture_id(stream);
  const auto ours = pool == kGeneralPool ? new_pool_id(/*shared=*/false) : pool;
  bool routed = false;
  try {
    begin_allocate_to_pool(index, ours, [id](accelStream_t s) { return capture_of(s) == id; });
    routed = true;
    host_allocator()->begin_allocate_to_pool(
        ours, [id](c10::Stream s) { return capture_id(s) == id; });
  } catch (...) {
    if (routed) {
      end_allocate_to_pool(index, ours);
      release_pool(index, ours);
    }
    accelStreamEndCapture(native(stream), &graph_);
    accelGraphDestroy(std::exchange(graph_, nullptr));
    throw;
  }
  stream_ = stream;
  capture_ = id;
  pool_ = ours;
  GraphRng::set(id, rng_);
}

void Graph::end_pools() {
  GraphRng::set(std::exchange(capture_, 0), nullptr);
  host_allocator()->end_allocate_to_pool(pool_);
  end_allocate_to_pool(stream_->device_index(), pool_);
}

void Graph::release_pools() {
  host_allocator()->release_pool(pool_);
  release_pool(stream_->device_index(), pool_);
}

void Graph::capture_end() {
  TORCH_CHECK(capture_ != 0, "Called AccelGraph::capture_end without a preceding capture_begin.");
  TORCH_CHECK(
      current_stream(stream_->device_index()) == *stream_,
      "Capture must end on the same stream it began on.");
  const auto id = capture_;
  try {
    check(accelStreamEndCapture(native(*stream_), &graph_));
  } catch (...) {
    if (capture_id(*stream_) != id) { // else it goes on, as after a call by the wrong thread
      end_pools();
      release_pools();
      rng_ = std::make_shared<GraphRng>();
    }
    throw;
  }
  end_pools();
  capture_ended_ = true;
  if (nodes().empty()) {
    TORCH_WARN(
        "The accel Graph is empty. This usually means that the graph was attempted to be captured "
        "on wrong device or stream.");
  }
  if (!keep_graph_) {
    instantiate();
    if (!debug_) {
      accelGraphDestroy(std::exchange(graph_, nullptr));
    }
  }
}

void Graph::instantiate() {
  TORCH_CHECK(capture_ended_, "capture_end() must have been called before calling instantiate");
  if (exec_ != nullptr) {
    TORCH_CHECK(
        keep_graph_,
        "instantiate() is intended to be called by the user only when keep_graph=true");
    check(accelGraphExecSynchronize(exec_, "AccelGraph.instantiate"));
    accelGraphExecDestroy(std::exchange(exec_, nullptr));
  }
  check(accelGraphInstantiate(&exec_, graph_));
}

void Graph::replay() {
  TORCH_CHECK(capture_ended_, "Called AccelGraph::replay without a preceding successful capture.");
  emit_collected_warnings();
  if (exec_ == nullptr) {
    instantiate();
  }
  const c10::DeviceGuard guard(stream_->device());
  const auto words = rng_->draw();
  check(accelGraphLaunch(
      exec_,
      native(current_stream(stream_->device_index())),
      words.data(),
      static_cast<uint32_t>(words.size()),
      nullptr));
}

void Graph::reset() {
  TORCH_CHECK(capture_ == 0, "Cannot reset an AccelGraph during its own capture.");
  if (exec_ != nullptr) {
    accelGraphExecSynchronize(exec_, "AccelGraph.reset"); // an aborted device runs nothing more
    accelGraphExecDestroy(std::exchange(exec_, nullptr));
  }
  accelGraphDestroy(std::exchange(graph_, nullptr));
  if (std::exchange(capture_ended_, false)) {
    release_pools();
  }
  rng_ = std::make_shared<GraphRng>();
}

c10::MempoolId_t Graph::pool() const {
  TORCH_CHECK(capture_ended_, "Called AccelGraph::pool() without a preceding successful capture.");
  return pool_;
}

void Graph::enable_debug_mode() {
  debug_ = true;
}

void Graph::debug_dump(const std::string& path) {
  if (!debug_ && !keep_graph_) {
    TORCH_WARN("accel Graphs debug not enabled, set with [graph].enable_debug_mode()");
    return;
  }
  std::ofstream file(path);
  TORCH_CHECK(file, "accel: debug_dump cannot write ", path);
  file << "digraph accel_graph {\n";
  const auto all = nodes();
  for (size_t i = 0; i < all.size(); ++i) {
    file << "  n" << i << " [label=\"" << i << ": " << all[i].name << "\\nstream " << all[i].stream
         << "\"];\n";
    for (const auto before : all[i].dependencies) {
      file << "  n" << before << " -> n" << i << ";\n";
    }
  }
  file << "}\n";
}

void Graph::register_generator_state(const at::Generator& generator) {
  const auto device = c10::Device(kDeviceType, current_device());
  rng_->register_state(generator_or_default(generator, device)->state());
}

std::vector<GraphNode> Graph::nodes() const {
  TORCH_CHECK(
      graph_ != nullptr,
      "You cannot access the raw accelGraph_t instance unless AccelGraph was initialized with "
      "keep_graph=true");
  std::vector<GraphNode> result;
  check(accelGraphForEachNode(
      graph_,
      [](const accelGraphNode* node, void* user) {
        static_cast<std::vector<GraphNode>*>(user)->push_back(
            {node->info->name,
             node->info->engine,
             from_native(node->stream).id(),
             {node->dependencies, node->dependencies + node->num_dependencies}});
      },
      &result));
  return result;
}

} // namespace accel

namespace at {
// The key is the backend's name in capitals.
REGISTER_GRAPH_IMPL(ACCEL, accel::Graph)
} // namespace at
