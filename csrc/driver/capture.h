// Captures: what a stream does while launches on it become nodes of a graph.
//
// Lock order: a stream's producer lock, then Capture::mutex, a leaf.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "accel_graph.h"
#include "ring.h"

namespace accel::driver {

// A captured launch. Its record's accesses and payload lie in the record's heap, its ticket is the
// node's index.
struct Node {
  Record record{};
  accelStream_t stream = nullptr;
  std::vector<uint32_t> dependencies; // indices of earlier nodes
  bool committed = false;

  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();
};
// In the order of capture.
using Nodes = std::vector<std::unique_ptr<Node>>;

struct Capture {
  Capture(uint64_t id, accelCaptureMode mode, accelStream_t origin);

  const uint64_t id;
  const accelCaptureMode mode;
  const accelStream_t origin;
  const void* const thread; // the one that began it

  std::mutex mutex;
  bool ended = false;
  std::string spoilt; // why it is invalid; empty: it is not
  Nodes nodes;
  std::vector<accelStream_t> members;

  // Notes the first reason why the capture cannot become a graph.
  void invalidate(const std::string& reason);
};

// A stream's part in a capture; guarded by the stream's producer lock.
struct CaptureState {
  std::shared_ptr<Capture> capture; // null: launches run
  std::vector<uint32_t> frontier; // the nodes that the next one depends on
  std::unique_ptr<Node> reserved; // between accelLaunchBegin and Commit
};

// A place in a capture, as an event keeps it.
struct CapturePoint {
  std::shared_ptr<Capture> capture; // null: not captured
  std::vector<uint32_t> frontier;
};

// ---- For launches, with the stream's producer lock held

// A record for a node of the stream's capture, or null with the message set.
Record* reserve_node(accelStream& stream);
// Appends the reserved node.
accelError_t commit_node(accelStream& stream);

// ---- For events

// Where the stream is in its capture.
CapturePoint capture_point(accelStream_t stream);
// Makes what comes next on `stream` depend on `point`; the stream joins the capture.
accelError_t join_capture(accelStream_t stream, const CapturePoint& point);
// accelSuccess unless the stream captures: what ran before a capture cannot be waited for in it.
accelError_t forbid_outside_event(accelStream_t stream);
// Refuses to wait or ask for a captured event.
accelError_t forbid_captured_event(const CapturePoint& point, const char* call);

// accelCaptureForbid without its frame.
accelError_t forbid(accelStream_t stream, const char* call);

} // namespace accel::driver
