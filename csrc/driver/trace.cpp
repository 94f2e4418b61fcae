#include "trace.h"

#include "error.h"
#include "os_linux.h"
#include "process.h"

namespace accel::driver {

std::atomic<const Tracer*> g_tracer{nullptr};

void trace_slow(
    const Tracer& tracer,
    accelTracePhase phase,
    accelStream_t stream,
    uint64_t ticket,
    const accelLaunchInfo& info) {
  accelTraceEvent event{};
  event.size = sizeof(event);
  event.phase = phase;
  event.stream = stream;
  event.ticket = ticket;
  event.nanoseconds = os::now();
  event.info = &info;
  tracer.callback(&event, tracer.user);
}

} // namespace accel::driver

extern "C" accelError_t accelSetTracer(
    void (*callback)(const accelTraceEvent* event, void* user),
    void* user) {
  using namespace accel::driver;
  return entry([&] {
    g_tracer.store(callback == nullptr ? nullptr : new Tracer{callback, user});
    return accelSuccess;
  });
}
