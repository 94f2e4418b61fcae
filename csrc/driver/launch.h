// Putting records onto a stream. Every function of the chip that is ordered on a stream comes here.
#pragma once

#include <atomic>
#include <new>
#include <type_traits>
#include <utility>

#include "accel.h"

namespace accel::driver {

// ACCEL_LAUNCH_BLOCKING.
extern std::atomic<bool> g_launch_blocking;

// A launch info of which nothing but name and engine is known.
accelLaunchInfo make_info(const char* name, accelEngine engine);

// Names the calling thread.
const void* this_thread();

// accelLaunchBegin and accelLaunchCommit without their frame; commit never waits for the launch.
accelError_t begin_launch(accelStream_t stream, const accelLaunch& launch, void** payload);
accelError_t commit_launch(accelStream_t stream, uint64_t* ticket);

// With ACCEL_LAUNCH_BLOCKING=1 waits for a launch just committed and raises its failure.
accelError_t wait_if_blocking(accelStream_t stream, uint64_t ticket);

// Makes what comes next on `stream` wait for a ticket of `source`, whose failures travel along.
accelError_t wait_on_stream(accelStream_t stream, accelStream_t source, uint64_t ticket);

// Enqueues `payload.run()`, which the worker calls.
template <class Payload>
accelError_t
enqueue(accelStream_t stream, const accelLaunchInfo& info, Payload payload, uint64_t* ticket) {
  accelLaunch launch{};
  launch.size = sizeof(launch);
  launch.info = &info;
  launch.payload_bytes = sizeof(Payload);
  launch.invoke = [](const void* p) { return static_cast<const Payload*>(p)->run(); };
  if constexpr (!std::is_trivially_destructible_v<Payload>) {
    launch.destroy = [](void* p) { static_cast<Payload*>(p)->~Payload(); };
  }
  void* place = nullptr;
  if (const accelError_t code = begin_launch(stream, launch, &place)) {
    return code;
  }
  new (place) Payload(std::move(payload));
  return commit_launch(stream, ticket);
}

} // namespace accel::driver
