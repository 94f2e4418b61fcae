// The subscribers to what happens on the chip.
#pragma once

#include <atomic>
#include <cstdint>

#include "accel_trace.h"

namespace accel::driver {

// The phases that anybody wants.
extern std::atomic<uint32_t> g_traced;

inline bool traced(accelTracePhase phase) {
  return (g_traced.load(std::memory_order_relaxed) & (1u << phase)) != 0;
}

// Hands the event to those who want it; returns the first error of theirs.
accelError_t publish(accelTraceEvent event);

// A phase of a launch.
inline void
trace(accelTracePhase phase, accelStream_t stream, uint64_t ticket, const accelLaunchInfo& info) {
  if (traced(phase)) {
    accelTraceEvent event{};
    event.phase = phase;
    event.stream = stream;
    event.ticket = ticket;
    event.info = &info;
    (void)publish(event);
  }
}

// What comes next on `stream` waits for the ticket of `source`.
inline void trace_wait(accelStream_t stream, accelStream_t source, uint64_t ticket) {
  if (traced(accelTraceWait)) {
    accelTraceEvent event{};
    event.phase = accelTraceWait;
    event.stream = stream;
    event.source = source;
    event.source_ticket = ticket;
    (void)publish(event);
  }
}

// The host now knows that the ticket is complete.
inline void trace_complete(accelStream_t stream, uint64_t ticket) {
  if (traced(accelTraceComplete) && ticket != 0) {
    accelTraceEvent event{};
    event.phase = accelTraceComplete;
    event.stream = stream;
    event.ticket = ticket;
    (void)publish(event);
  }
}

inline void trace_range(accelTracePhase phase, const void* address, uint64_t bytes) {
  if (traced(phase)) {
    accelTraceEvent event{};
    event.phase = phase;
    event.address = address;
    event.bytes = bytes;
    (void)publish(event);
  }
}

} // namespace accel::driver
