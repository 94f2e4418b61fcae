// Worker threads. An active stream has one; an idle stream gives it back to the pool.
#pragma once

#include <cstdint>

#include "accel.h"
#include "capture.h"

namespace accel::driver {

// Sees to it that the records published on `stream` will run; call after publishing. False if that
// needed a new thread and the system has none left.
bool attach_worker(accelStream& stream);
// Makes a parked worker look at its stream and device again.
void wake_worker(accelStream& stream);
// Runs a node of a graph within the launch that this thread, a worker, runs.
void run_node(const Node& node);
// Asks the workers to end and waits for it up to `deadline` (os::now()).
void end_workers(uint64_t deadline);

// The stream whose worker this thread is, or null.
accelStream_t stream_of_this_thread();

} // namespace accel::driver
