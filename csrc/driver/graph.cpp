#include "graph.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "launch.h"
#include "process.h"
#include "stream.h"
#include "trace.h"
#include "worker.h"

namespace accel::driver {

namespace {

// What launches share with their graph.
struct Executable {
  std::shared_ptr<const Nodes> nodes;
  std::mutex running; // one launch at a time; taken by workers only
};

struct Launched {
  accelStream_t stream;
  uint64_t ticket;
  uint32_t since; // the device's resets before the launch

  bool complete() const {
    return stream->completion.value() >= ticket;
  }
};

struct RunGraph {
  std::shared_ptr<Executable> executable;
  std::vector<accelGraphWord> words;

  accelError_t run() const {
    std::lock_guard<std::mutex> lock(executable->running);
    for (const accelGraphWord& word : words) {
      *word.place = word.value;
    }
    for (const auto& node : *executable->nodes) {
      run_node(*node);
    }
    return accelSuccess;
  }
};

// Tells the subscribers of each node of a launch of the graph.
accelError_t tell_nodes(
    accelTracePhase phase,
    const Executable& executable,
    accelStream_t stream,
    uint64_t ticket) {
  if (!traced(phase)) {
    return accelSuccess;
  }
  accelTraceEvent event{};
  event.phase = phase;
  event.stream = stream;
  event.ticket = ticket;
  for (const auto& node : *executable.nodes) {
    event.info = &node->record.info;
    event.index = static_cast<uint32_t>(node->record.ticket);
    if (const accelError_t code = publish(event)) {
      return code;
    }
  }
  return accelSuccess;
}

} // namespace

} // namespace accel::driver

using namespace accel::driver;

struct accelGraphExec {
  std::shared_ptr<Executable> executable;
  std::mutex mutex; // a leaf
  std::vector<Launched> launched; // the newest of each stream, while unfinished

  std::vector<Launched> unfinished() {
    std::lock_guard<std::mutex> lock(mutex);
    launched.erase(
        std::remove_if(launched.begin(), launched.end(), [](auto& l) { return l.complete(); }),
        launched.end());
    return launched;
  }

  void note(const Launched& launch) {
    std::lock_guard<std::mutex> lock(mutex);
    for (Launched& known : launched) {
      if (known.stream == launch.stream) {
        known = launch.ticket > known.ticket ? launch : known;
        return;
      }
    }
    launched.push_back(launch);
  }
};

extern "C" accelError_t accelGraphForEachNode(
    accelGraph_t graph,
    void (*visit)(const accelGraphNode* node, void* user),
    void* user) {
  return entry([&] {
    if (graph == nullptr || visit == nullptr) {
      return invalid("accelGraphForEachNode", "an argument is null");
    }
    uint32_t index = 0;
    for (const auto& node : *graph->nodes) {
      accelGraphNode described{};
      described.size = sizeof(described);
      described.index = index++;
      described.stream = node->stream;
      described.info = &node->record.info;
      described.dependencies = node->dependencies.data();
      described.num_dependencies = static_cast<uint32_t>(node->dependencies.size());
      visit(&described, user);
    }
    return accelSuccess;
  });
}

extern "C" void accelGraphDestroy(accelGraph_t graph) {
  (void)entry([&] {
    delete graph;
    return accelSuccess;
  });
}

extern "C" accelError_t accelGraphInstantiate(accelGraphExec_t* exec, accelGraph_t graph) {
  return entry([&] {
    if (exec == nullptr || graph == nullptr) {
      return invalid("accelGraphInstantiate", "an argument is null");
    }
    auto executable = std::make_shared<Executable>();
    executable->nodes = graph->nodes;
    *exec = new accelGraphExec{std::move(executable), {}, {}};
    return accelSuccess;
  });
}

extern "C" accelError_t accelGraphLaunch(
    accelGraphExec_t exec,
    accelStream_t stream,
    const accelGraphWord* words,
    uint32_t num_words,
    uint64_t* ticket) {
  return entry([&] {
    if (exec == nullptr || stream == nullptr || (words == nullptr && num_words != 0)) {
      return invalid("accelGraphLaunch", "an argument is null");
    }
    if (stream->capture_id.load() != 0) {
      return fail(
          accelErrorNotSupported,
          "accel: accelGraphLaunch: a graph cannot be part of another capture; capture its work "
          "itself, or launch it after the capture");
    }
    for (const Launched& before : exec->unfinished()) {
      if (before.stream != stream) {
        if (const accelError_t code = wait_on_stream(stream, before.stream, before.ticket)) {
          return code;
        }
      }
    }
    if (const accelError_t code = tell_nodes(accelTraceLaunch, *exec->executable, stream, 0)) {
      return code;
    }
    const uint32_t since = stream->device.resets.load();
    uint64_t mine = 0;
    if (const accelError_t code = enqueue(
            stream,
            make_info("graph_launch", accelEngineCompute),
            RunGraph{exec->executable, {words, words + num_words}},
            &mine)) {
      return code;
    }
    exec->note({stream, mine, since});
    (void)tell_nodes(accelTraceNode, *exec->executable, stream, mine);
    if (ticket != nullptr) {
      *ticket = mine;
    }
    return wait_if_blocking(stream, mine);
  });
}

extern "C" accelError_t accelGraphExecSynchronize(accelGraphExec_t exec, const char* caller) {
  return entry([&] {
    if (exec == nullptr) {
      return invalid("accelGraphExecSynchronize", "the graph is null");
    }
    for (const Launched& before : exec->unfinished()) {
      if (const accelError_t code =
              host_wait(before.stream, before.ticket, caller_or_unknown(caller), before.since)) {
        return code;
      }
    }
    return accelSuccess;
  });
}

extern "C" void accelGraphExecDestroy(accelGraphExec_t exec) {
  (void)entry([&] {
    delete exec;
    return accelSuccess;
  });
}
