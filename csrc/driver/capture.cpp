#include "capture.h"

#include <algorithm>
#include <new>
#include <utility>

#include "graph.h"
#include "launch.h"
#include "process.h"
#include "stream.h"
#include "trace.h"
#include "worker.h"

namespace accel::driver {

namespace {

// The captures that have begun and not ended.
struct Captures {
  std::mutex mutex; // a leaf
  std::vector<std::shared_ptr<Capture>> active;
  std::atomic<size_t> count{0}; // lets forbid() skip the lock in the usual case
};

Captures& captures() {
  static Captures* captures = new Captures();
  return *captures;
}

std::atomic<uint64_t> g_capture_ids{0};
thread_local accelCaptureMode t_mode = accelCaptureGlobal;

accelError_t refuse(const char* call, const char* reason) {
  return fail(accelErrorCapture, "accel: %s: %s", call, reason);
}

accelError_t refuse_spoilt(const std::string& reason) {
  return fail(
      accelErrorCapture,
      "accel: operation failed due to a previous error during capture (%s)",
      reason.c_str());
}

// The capture that keeps this thread from unsafe calls, or null.
std::shared_ptr<Capture> capture_in_the_way() {
  if (t_mode == accelCaptureRelaxed || stream_of_this_thread() != nullptr) {
    return nullptr;
  }
  Captures& all = captures();
  std::lock_guard<std::mutex> lock(all.mutex);
  for (const auto& capture : all.active) {
    const bool own = capture->thread == this_thread();
    if (own ? capture->mode != accelCaptureRelaxed
            : capture->mode == accelCaptureGlobal && t_mode == accelCaptureGlobal) {
      return capture;
    }
  }
  return nullptr;
}

void leave(accelStream_t stream) {
  stream->captured = CaptureState();
  stream->capture_id.store(0);
  stream->capture_spoilt.store(false);
}

// True if every node is at or before one of `ends`.
bool all_joined(const Nodes& nodes, const std::vector<uint32_t>& ends) {
  std::vector<bool> reached(nodes.size());
  for (const uint32_t end : ends) {
    reached[end] = true;
  }
  for (size_t i = nodes.size(); i-- > 0;) { // dependencies come before
    if (!reached[i]) {
      return false;
    }
    for (const uint32_t before : nodes[i]->dependencies) {
      reached[before] = true;
    }
  }
  return true;
}

} // namespace

Node::~Node() {
  if (committed && record.destroy != nullptr) {
    record.destroy(record.payload);
  }
  ::operator delete(record.heap, std::align_val_t(16));
}

Capture::Capture(uint64_t id, accelCaptureMode mode, accelStream_t origin)
    : id(id), mode(mode), origin(origin), thread(this_thread()) {}

void Capture::invalidate(const std::string& reason) {
  std::lock_guard<std::mutex> lock(mutex);
  if (ended || !spoilt.empty()) {
    return;
  }
  spoilt = reason;
  for (accelStream_t member : members) {
    member->capture_spoilt.store(true);
  }
}

Record* reserve_node(accelStream& stream) {
  CaptureState& state = stream.captured;
  {
    std::lock_guard<std::mutex> lock(state.capture->mutex);
    if (!state.capture->spoilt.empty()) {
      refuse_spoilt(state.capture->spoilt);
      return nullptr;
    }
  }
  state.reserved = std::make_unique<Node>();
  state.reserved->stream = &stream;
  return &state.reserved->record;
}

accelError_t commit_node(accelStream& stream) {
  CaptureState& state = stream.captured;
  std::unique_ptr<Node> node = std::move(state.reserved);
  node->committed = true;
  node->dependencies = state.frontier;
  Capture& capture = *state.capture;
  std::lock_guard<std::mutex> lock(capture.mutex);
  if (capture.ended) {
    return refuse(node->record.info.name, "the stream's capture ended during this launch");
  }
  const auto index = static_cast<uint32_t>(capture.nodes.size());
  node->record.ticket = index;
  if (traced(accelTraceCapture)) {
    accelTraceEvent event{};
    event.phase = accelTraceCapture;
    event.stream = &stream;
    event.info = &node->record.info;
    event.capture = capture.id;
    event.index = index;
    event.dependencies = node->dependencies.data();
    event.num_dependencies = static_cast<uint32_t>(node->dependencies.size());
    (void)publish(event);
  }
  capture.nodes.push_back(std::move(node));
  state.frontier.assign(1, index);
  return accelSuccess;
}

CapturePoint capture_point(accelStream_t stream) {
  if (stream->capture_id.load() == 0) {
    return {};
  }
  std::lock_guard<std::mutex> lock(stream->producer);
  return {stream->captured.capture, stream->captured.frontier};
}

accelError_t join_capture(accelStream_t stream, const CapturePoint& point) {
  std::lock_guard<std::mutex> lock(stream->producer);
  CaptureState& state = stream->captured;
  Capture& capture = *point.capture;
  if (state.capture != nullptr && state.capture != point.capture) {
    const char* reason = "the event belongs to the capture of another stream";
    capture.invalidate(reason);
    state.capture->invalidate(reason);
    return refuse("accelStreamWaitEvent", reason);
  }
  std::lock_guard<std::mutex> also(capture.mutex);
  if (capture.ended) {
    return refuse("accelStreamWaitEvent", "the event was recorded in a capture that has ended");
  }
  if (!capture.spoilt.empty()) {
    return refuse_spoilt(capture.spoilt);
  }
  if (state.capture == nullptr) {
    capture.members.push_back(stream);
    state.capture = point.capture;
    stream->capture_id.store(capture.id);
  }
  for (const uint32_t node : point.frontier) {
    if (std::find(state.frontier.begin(), state.frontier.end(), node) == state.frontier.end()) {
      state.frontier.push_back(node);
    }
  }
  return accelSuccess;
}

accelError_t forbid_outside_event(accelStream_t stream) {
  const CapturePoint point = capture_point(stream);
  if (point.capture == nullptr) {
    return accelSuccess;
  }
  const char* reason = "the stream is capturing, but the event was recorded outside of the capture";
  point.capture->invalidate(std::string("accelStreamWaitEvent: ") + reason);
  return refuse("accelStreamWaitEvent", reason);
}

accelError_t forbid_captured_event(const CapturePoint& point, const char* call) {
  const char* reason = "operation not permitted on an event last recorded in a capturing stream";
  point.capture->invalidate(std::string(call) + ": " + reason);
  return refuse(call, reason);
}

accelError_t forbid(accelStream_t stream, const char* call) {
  if (captures().count.load() == 0) {
    return accelSuccess;
  }
  std::shared_ptr<Capture> capture;
  const char* reason = "operation not permitted when stream is capturing";
  if (stream != nullptr) {
    capture = capture_point(stream).capture;
  }
  if (capture == nullptr) {
    capture = capture_in_the_way();
    reason =
        "operation not permitted while this thread, or another one in global mode, is capturing";
  }
  if (capture == nullptr) {
    return accelSuccess;
  }
  capture->invalidate(std::string(call) + ": " + reason);
  return refuse(call, reason);
}

} // namespace accel::driver

using namespace accel::driver;

extern "C" accelError_t accelStreamBeginCapture(accelStream_t stream, accelCaptureMode mode) {
  return entry([&] {
    if (stream == nullptr || mode < accelCaptureGlobal || mode > accelCaptureRelaxed) {
      return invalid("accelStreamBeginCapture", "the stream is null or the mode is unknown");
    }
    std::lock_guard<std::mutex> lock(stream->producer);
    if (stream->captured.capture != nullptr || stream->destroyed) {
      return refuse("accelStreamBeginCapture", "the stream is capturing already, or destroyed");
    }
    auto capture = std::make_shared<Capture>(g_capture_ids.fetch_add(1) + 1, mode, stream);
    capture->members.push_back(stream);
    Captures& all = captures();
    std::lock_guard<std::mutex> also(all.mutex);
    all.active.push_back(capture);
    all.count.store(all.active.size());
    stream->captured.capture = std::move(capture);
    stream->capture_id.store(stream->captured.capture->id);
    return accelSuccess;
  });
}

extern "C" accelError_t accelStreamEndCapture(accelStream_t stream, accelGraph_t* graph) {
  return entry([&] {
    if (stream == nullptr || graph == nullptr) {
      return invalid("accelStreamEndCapture", "an argument is null");
    }
    *graph = nullptr;
    const CapturePoint end = capture_point(stream);
    if (end.capture == nullptr) {
      return refuse("accelStreamEndCapture", "the stream is not capturing");
    }
    Capture& capture = *end.capture;
    if (capture.origin != stream) {
      return refuse("accelStreamEndCapture", "the capture began on another stream");
    }
    if (capture.mode != accelCaptureRelaxed && capture.thread != this_thread()) {
      return refuse("accelStreamEndCapture", "another thread began the capture");
    }
    Nodes nodes;
    std::vector<accelStream_t> members;
    std::string spoilt;
    {
      std::lock_guard<std::mutex> lock(capture.mutex);
      if (capture.ended) {
        return refuse("accelStreamEndCapture", "another thread has ended the capture");
      }
      capture.ended = true;
      nodes.swap(capture.nodes);
      members.swap(capture.members);
      spoilt = capture.spoilt;
    }
    for (accelStream_t member : members) {
      std::lock_guard<std::mutex> lock(member->producer);
      leave(member);
    }
    {
      Captures& all = captures();
      std::lock_guard<std::mutex> lock(all.mutex);
      all.active.erase(std::find(all.active.begin(), all.active.end(), end.capture));
      all.count.store(all.active.size());
    }
    if (!spoilt.empty()) {
      return refuse_spoilt(spoilt);
    }
    if (!all_joined(nodes, end.frontier)) {
      return refuse(
          "accelStreamEndCapture",
          "the capture has work on a stream that was not joined back: record an event there and "
          "let "
          "the capturing stream wait for it");
    }
    *graph = new accelGraph{std::make_shared<const Nodes>(std::move(nodes))};
    return accelSuccess;
  });
}

extern "C" accelError_t
accelStreamGetCaptureInfo(accelStream_t stream, accelCaptureStatus* status, uint64_t* id) {
  return entry([&] {
    if (stream == nullptr) {
      return invalid("accelStreamGetCaptureInfo", "the stream is null");
    }
    const uint64_t capture = stream->capture_id.load();
    if (id != nullptr) {
      *id = capture;
    }
    if (status != nullptr) {
      *status = capture == 0              ? accelCaptureNone
          : stream->capture_spoilt.load() ? accelCaptureInvalidated
                                          : accelCaptureActive;
    }
    return accelSuccess;
  });
}

extern "C" accelError_t accelThreadExchangeCaptureMode(accelCaptureMode* mode) {
  return frame([&] {
    if (mode == nullptr || *mode < accelCaptureGlobal || *mode > accelCaptureRelaxed) {
      return invalid("accelThreadExchangeCaptureMode", "the pointer is null or the mode unknown");
    }
    std::swap(*mode, t_mode);
    return accelSuccess;
  });
}

extern "C" accelError_t accelCaptureForbid(accelStream_t stream, const char* call) {
  return entry([&] { return forbid(stream, caller_or_unknown(call)); });
}
