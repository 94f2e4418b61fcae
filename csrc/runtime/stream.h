// Streams: torch's c10::Stream <-> the driver's accelStream_t. Stream id 0 is a device's default
// stream; pool streams have the ids 1 .. 64 (32 per priority, made on first use, handed out round
// robin, as in torch.cuda). Streams that others made with the driver's interface come after them.
#pragma once

#include <c10/core/Stream.h>

#include <atomic>

#include "../driver/accel_graph.h"
#include "../driver/accel_trace.h"
#include "device.h"

namespace accel {

// Priorities as in torch.cuda: lower is more urgent; -1 high, 0 normal.
constexpr int kLowestPriority = 0;
constexpr int kHighestPriority = -1;

ACCEL_API c10::Stream default_stream(c10::DeviceIndex index = -1);
ACCEL_API c10::Stream current_stream(c10::DeviceIndex index = -1);
ACCEL_API c10::Stream stream_from_pool(c10::DeviceIndex index = -1, int priority = kLowestPriority);
// Makes `stream` the current stream of its device for this thread; returns the previous one. Does
// not change the current device.
c10::Stream exchange_stream(c10::Stream stream);

// The driver's handle. Throws for a stream of another device type or an unknown id.
ACCEL_API accelStream_t native(c10::Stream stream);
// The torch stream of a driver handle that torch knows.
ACCEL_API c10::Stream from_native(accelStream_t stream);
// The same for any driver handle of that device; makes it known.
ACCEL_API c10::Stream stream_from_external(accelStream_t stream, c10::DeviceIndex index);

// The captures that torch has under way: while there is none, nothing asks further.
inline std::atomic<size_t> g_captures{0};
// The capture that the stream is part of, or 0. Lock-free; does not initialise.
uint64_t capture_id(c10::Stream stream) noexcept;
uint64_t capture_of(accelStream_t stream) noexcept;
// Throws, with a text that names `call`, where a capture forbids to wait for `stream`; see
// accel_graph.h.
void forbid_in_capture(c10::Stream stream, const char* call);

// While alive, no capture of another stream or thread forbids this thread to wait: for what must be
// waited for, such as memory, and is known to run.
class RelaxedCapture {
 public:
  RelaxedCapture() noexcept {
    accelThreadExchangeCaptureMode(&mode_);
  }
  ~RelaxedCapture() {
    accelThreadExchangeCaptureMode(&mode_);
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  accelCaptureMode mode_ = accelCaptureRelaxed;
};

bool query_stream(c10::Stream stream);
// Waits (GIL released) and raises a kernel's failure. `caller` names the public function for
// torch.accel's wait counters.
void synchronize_stream(c10::Stream stream, const char* caller);
void synchronize_device(c10::DeviceIndex index, const char* caller);

// torch.cuda's sync debug mode: what a call does that makes the host wait for a stream.
enum class SyncDebugMode : int { kDefault = 0, kWarn = 1, kError = 2 };
SyncDebugMode sync_debug_mode();
void set_sync_debug_mode(SyncDebugMode mode);
// To be called before such a wait, whether or not there is anything to wait for.
void note_sync(const char* caller);

// A point in a stream's order; what a freed block remembers.
struct Ticket {
  accelStream_t stream = nullptr;
  uint64_t value = 0;

  bool complete() const {
    uint64_t completed = 0;
    return stream == nullptr ||
        (accelStreamGetTickets(stream, nullptr, &completed) == accelSuccess && completed >= value);
  }
};
// Tells the chip's subscribers what happened to a range of memory: see accel_trace.h.
void note_memory(accelTracePhase phase, const void* address, size_t bytes, Ticket ticket) noexcept;
// The ticket of the newest launch on `stream`.
Ticket last_ticket(accelStream_t stream);

} // namespace accel
