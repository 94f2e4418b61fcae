// The one subscriber to what happens to launches.
#pragma once

#include <atomic>
#include <cstdint>

#include "accel.h"

namespace accel::driver {

struct Tracer {
  void (*callback)(const accelTraceEvent* event, void* user);
  void* user;
};

// Replaced as a whole and never freed: a callback may be running.
extern std::atomic<const Tracer*> g_tracer;

void trace_slow(
    const Tracer& tracer,
    accelTracePhase phase,
    accelStream_t stream,
    uint64_t ticket,
    const accelLaunchInfo& info);

inline void
trace(accelTracePhase phase, accelStream_t stream, uint64_t ticket, const accelLaunchInfo& info) {
  if (const Tracer* tracer = g_tracer.load(std::memory_order_acquire)) {
    trace_slow(*tracer, phase, stream, ticket, info);
  }
}

} // namespace accel::driver
