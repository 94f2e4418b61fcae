// A stream: its ring, its worker's state, its newest complete ticket, its failure.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "accel.h"
#include "capture.h"
#include "device.h"
#include "error.h"
#include "ring.h"
#include "wait.h"

// Lives until the process ends, so that a handle or a (stream, ticket) pair can always be asked.
struct accelStream {
  accelStream(accel::driver::Device& device, int priority, uint32_t id)
      : device(device), priority(priority), id(id) {}

  accel::driver::Device& device;
  const int priority;
  const uint32_t id; // counts streams in the process

  // Held from accelLaunchBegin to Commit or Cancel. Lock order: this one first; every other mutex
  // of the driver is a leaf. Nobody waits for a worker with it held.
  std::mutex producer;
  std::atomic<const void*> holder{nullptr}; // tells the thread that holds it
  accel::driver::Record* reserved = nullptr;
  bool destroyed = false;
  std::atomic<uint64_t> enqueued{0};
  accel::driver::Ring ring;

  accel::driver::CaptureState captured; // guarded by producer
  std::atomic<uint64_t> capture_id{0}; // of `captured`, for those who may not lock
  std::atomic<bool> capture_spoilt{false};

  accel::driver::Completion completion;
  accel::driver::FailureSlot failure;

  // Not 0: the programs of the grid that runs here are to end (accelGridContext::abort).
  std::atomic<uint32_t> grid_abort{0};

  // The worker's state (worker.cpp).
  std::atomic<uint32_t> worker{0};
  std::atomic<uint32_t> worker_signal{0};
};

namespace accel::driver {

// Waits for `ticket` and raises a failure at or before it. `since` as for host_wait.
accelError_t wait_ticket(accelStream_t stream, uint64_t ticket, const char* caller, uint32_t since);

} // namespace accel::driver
