// accel_graph.h: capture and replay, the second part of the chip's C interface. Conventions as in
// accel.h; modelled on cuStreamBeginCapture and cuGraph*.
//
// While a stream captures, what is enqueued on it becomes a node of a graph instead of running. An
// event recorded there marks a place in the graph; a stream that waits for it joins the capture.
// Captured launches have no ticket of their own: accelLaunchCommit gives the stream's newest.
#pragma once

#include "accel.h"

#ifdef __cplusplus
extern "C" {
#endif

// Captured work; does not change.
typedef struct accelGraph* accelGraph_t;
// A graph that can be launched.
typedef struct accelGraphExec* accelGraphExec_t;

// Whom a capture keeps from calls that wait or ask whether work is complete.
typedef enum accelCaptureMode {
  accelCaptureGlobal = 0, // every thread
  accelCaptureThreadLocal = 1, // the thread that began the capture
  accelCaptureRelaxed = 2, // nobody
} accelCaptureMode;

typedef enum accelCaptureStatus {
  accelCaptureNone = 0,
  accelCaptureActive = 1,
  accelCaptureInvalidated = 2, // an illegal call spoilt it; it must still be ended
} accelCaptureStatus;

// ---- Capture

ACCEL_API accelError_t accelStreamBeginCapture(accelStream_t stream, accelCaptureMode mode);
// Ends the capture that began on `stream`, on the thread that began it unless the mode is relaxed.
// Returns accelErrorCapture, and a null graph, if the capture was invalidated or a stream that
// joined it was not joined back by an event.
ACCEL_API accelError_t accelStreamEndCapture(accelStream_t stream, accelGraph_t* graph);
// Either pointer may be null. The id is 0 while the stream captures nothing. Lock-free.
ACCEL_API accelError_t
accelStreamGetCaptureInfo(accelStream_t stream, accelCaptureStatus* status, uint64_t* id);
// Whether captures of that mode restrict this thread: with global (the default) its own and the
// global ones of others, with thread-local its own, with relaxed none. Returns the mode before.
ACCEL_API accelError_t accelThreadExchangeCaptureMode(accelCaptureMode* mode);
// accelSuccess if this thread may wait or ask for work of `stream` (null: of any other). Otherwise
// accelErrorCapture, with a text that names `call`, and the capture in the way is invalidated.
ACCEL_API accelError_t accelCaptureForbid(accelStream_t stream, const char* call);

// ---- Graphs

typedef struct accelGraphNode {
  uint32_t size;
  uint32_t index; // in the order of capture, which the dependencies allow
  accelStream_t stream; // where it was captured
  const accelLaunchInfo* info;
  const uint32_t* dependencies; // indices of the nodes that must end first
  uint32_t num_dependencies;
} accelGraphNode;

// Calls `visit` once per node, in order.
ACCEL_API accelError_t accelGraphForEachNode(
    accelGraph_t graph,
    void (*visit)(const accelGraphNode* node, void* user),
    void* user);
// Null is ignored. What was instantiated lives on.
ACCEL_API void accelGraphDestroy(accelGraph_t graph);
ACCEL_API accelError_t accelGraphInstantiate(accelGraphExec_t* exec, accelGraph_t graph);

// A word of host memory that a launch writes before its nodes run.
typedef struct accelGraphWord {
  uint64_t* place;
  uint64_t value;
} accelGraphWord;

// Enqueues all nodes as one launch, behind the earlier launches of `exec` on any stream. The
// failure of a node is the stream's, under the node's name; the nodes after it run.
ACCEL_API accelError_t accelGraphLaunch(
    accelGraphExec_t exec,
    accelStream_t stream,
    const accelGraphWord* words,
    uint32_t num_words,
    uint64_t* ticket);
// Waits until no launch of `exec` is unfinished. Allowed during a capture; raises no failure.
ACCEL_API accelError_t accelGraphExecSynchronize(accelGraphExec_t exec, const char* caller);
// Null is ignored. Launches already made run.
ACCEL_API void accelGraphExecDestroy(accelGraphExec_t exec);

#ifdef __cplusplus
} // extern "C"
#endif
