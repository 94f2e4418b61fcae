// accel_trace.h: what happens on the chip, told to subscribers; the third part of the chip's C
// interface. Conventions as in accel.h; modelled on cuptiSubscribe. Tracing, sanitizer, profiler
// and clock read this and nothing else.
//
// While nobody subscribes to a phase, it costs one relaxed load.
#pragma once

#include "accel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum accelTracePhase {
  // A launch. Enqueue comes on the enqueuing thread, under the stream's producer lock; Begin and
  // End come on the worker, also for each node of a graph.
  accelTraceEnqueue = 0,
  accelTraceBegin = 1,
  accelTraceEnd = 2,
  // Before a launch is enqueued or captured, on the calling thread, with nothing locked by the
  // driver; also for each node of a graph that is about to be launched. A callback that returns an
  // error (accelTraceRefuse) ends the call with it, and nothing is enqueued.
  accelTraceLaunch = 3,
  // A launch has become node `index` of `capture`, behind `dependencies`.
  accelTraceCapture = 4,
  // A node of a graph that was enqueued as `ticket`.
  accelTraceNode = 5,
  // What comes next on `stream` waits for `source_ticket` of `source`.
  accelTraceWait = 6,
  // The host was told that `ticket` of `stream` is complete: by a wait or a query. With a range:
  // all that `stream` did there is, which the allocator has found out.
  accelTraceComplete = 7,
  // A range of device (on `stream`) or pinned memory has a new owner; a range belongs to nobody any
  // more and nothing queued uses it.
  accelTraceAllocate = 8,
  accelTraceRelease = 9,
} accelTracePhase;

// What a phase does not mention is 0.
typedef struct accelTraceEvent {
  uint32_t size;
  accelTracePhase phase;
  accelStream_t stream;
  uint64_t ticket;
  uint64_t nanoseconds; // CLOCK_MONOTONIC; set by the driver
  const accelLaunchInfo* info; // valid during the callback
  accelStream_t source;
  uint64_t source_ticket;
  uint64_t capture; // id, while the stream captures: Launch, Capture
  uint32_t index;
  uint32_t num_dependencies;
  const uint32_t* dependencies; // nodes of the capture
  const void* address;
  uint64_t bytes;
} accelTraceEvent;

typedef struct accelSubscriber {
  uint32_t size;
  uint32_t phases; // 1 << phase, of each that is wanted
  // Called on any thread, by several at once. The result counts for accelTraceLaunch only.
  accelError_t (*callback)(const accelTraceEvent* event, void* user);
  void* user;
} accelSubscriber;

// Up to 8 at a time, accelErrorNotSupported beyond. Works before accelInit.
ACCEL_API accelError_t accelTraceSubscribe(const accelSubscriber* subscriber, uint64_t* id);
// Returns when no callback of it is running any more; so never from within one.
ACCEL_API accelError_t accelTraceUnsubscribe(uint64_t id);
// Sets this thread's message and returns accelErrorRefused.
ACCEL_API accelError_t accelTraceRefuse(const char* message);
// For the layer above, which knows about memory what the driver does not: hands the event on.
ACCEL_API void accelTraceNote(const accelTraceEvent* event);

#ifdef __cplusplus
} // extern "C"
#endif
