// Events. An event is a handle on (stream, ticket), the ticket of a marker record; waits take the
// pair by value, so recording the event again or destroying it changes nothing for them.
#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>

#include "ipc_event.h"
#include "launch.h"
#include "os_linux.h"
#include "process.h"
#include "stream.h"
#include "trace.h"
#include "worker.h"

namespace accel::driver {

namespace {

// When the stream passed one recording; shared by the event and the marker.
struct Timing {
  std::atomic<uint64_t> nanoseconds{0};
};

struct Recording {
  accelStream_t stream = nullptr; // null: never recorded
  uint64_t ticket = 0;
  std::shared_ptr<Timing> timing; // null: not a timing event
  CapturePoint captured; // recorded in a capture: the ticket then means nothing
  uint64_t shared = 0; // its number in the SharedEvent

  bool complete() const {
    return stream == nullptr || stream->completion.value() >= ticket;
  }
};

struct Marker {
  std::shared_ptr<Timing> timing;
  std::shared_ptr<SharedEvent> shared;
  uint64_t recording = 0;

  accelError_t run() const {
    if (shared != nullptr) {
      shared->complete(recording);
    }
    if (timing != nullptr) {
      timing->nanoseconds.store(os::now());
    }
    return accelSuccess;
  }
};

struct WaitEvent {
  accelStream_t source;
  uint64_t ticket;
  uint32_t since; // the source's device's resets at the call

  accelError_t run() const {
    accelStream_t waiting = stream_of_this_thread();
    if (!source->completion.spin(ticket)) {
      source->completion.park(ticket, waiting->device.aborted);
    }
    if (auto failure = source->failure.find(ticket)) {
      uint64_t mine = 0;
      accelStreamOfThisThread(&mine);
      waiting->failure.adopt(std::move(failure), mine);
    }
    // The word first: see Device::reset.
    if (source->device.aborted.load() == 0 && source->device.resets.load() == since) {
      return accelSuccess;
    }
    accelSetKernelError("the device of the stream waited for was aborted");
    return accelErrorAborted;
  }
};

// Another process's recording.
struct Foreign {
  std::shared_ptr<SharedEvent> event;
  uint64_t recording = 0;

  explicit operator bool() const {
    return event != nullptr;
  }
  bool complete() const {
    return event->is_complete(recording);
  }
  // What it was recorded for may be complete although the process has ended since.
  bool lost() const {
    return !event->is_alive(recording) && !complete();
  }
};

constexpr const char* kLost = "the process that recorded the interprocess event ended before it";

struct WaitForeign {
  Foreign foreign;

  accelError_t run() const {
    const std::atomic<uint32_t>& aborted = stream_of_this_thread()->device.aborted;
    for (uint64_t nap = 10'000; !foreign.complete(); nap = std::min<uint64_t>(2 * nap, 1'000'000)) {
      if (aborted.load() != 0) {
        return accelErrorAborted;
      }
      if (foreign.lost()) {
        accelSetKernelError(kLost);
        return accelErrorLaunchFailure;
      }
      os::futex_wait(aborted, 0, nap);
    }
    return accelSuccess;
  }
};

} // namespace

accelError_t wait_on_stream(accelStream_t stream, accelStream_t source, uint64_t ticket) {
  trace_wait(stream, source, ticket); // first: nobody may see a launch behind the wait and not it
  return enqueue(
      stream,
      make_info("wait_event", accelEngineHost),
      WaitEvent{source, ticket, source->device.resets.load()},
      nullptr);
}

} // namespace accel::driver

using namespace accel::driver;

struct accelEvent {
  explicit accelEvent(bool timing) : timing(timing) {}
  explicit accelEvent(std::shared_ptr<SharedEvent> shared)
      : timing(false), shared(std::move(shared)) {}

  // The newest recording, if another process made it.
  Foreign foreign() {
    if (shared == nullptr) {
      return {};
    }
    const uint64_t newest = shared->newest();
    std::lock_guard<std::mutex> lock(mutex);
    return newest > recording.shared ? Foreign{shared, newest} : Foreign{};
  }

  Recording get() {
    std::lock_guard<std::mutex> lock(mutex);
    return recording;
  }

  const bool timing;
  const std::shared_ptr<SharedEvent> shared; // null: this process's alone
  std::mutex mutex; // a leaf
  Recording recording;
};

namespace {

// Whether a capture forbids to wait or ask for the recording.
accelError_t forbid_wait(const Recording& recording, const char* call) {
  if (recording.captured.capture != nullptr) {
    return forbid_captured_event(recording.captured, call);
  }
  return forbid(nullptr, call);
}

// What another process recorded may come after anything that this one has enqueued: subscribers
// cannot see how. For `stream`, or for the host where that is null.
void trace_foreign(accelStream_t stream) {
  if (!traced(accelTraceWait) && !traced(accelTraceComplete)) {
    return;
  }
  for (const auto& device : g_chip->devices) {
    for (accelStream_t source : device->streams()) {
      const uint64_t ticket = source->enqueued.load();
      if (stream != nullptr && source != stream) {
        trace_wait(stream, source, ticket);
      } else if (stream == nullptr) {
        trace_complete(source, ticket);
      }
    }
  }
}

} // namespace

extern "C" accelError_t accelEventCreate(uint32_t flags, accelEvent_t* event) {
  return entry([&] {
    if (event == nullptr || (flags & ~uint32_t{accelEventTiming}) != 0) {
      return invalid("accelEventCreate", "the result pointer is null or a flag is unknown");
    }
    *event = new accelEvent((flags & accelEventTiming) != 0);
    return accelSuccess;
  });
}

extern "C" void accelEventDestroy(accelEvent_t event) {
  (void)entry([&] {
    delete event;
    return accelSuccess;
  });
}

extern "C" accelError_t accelEventRecord(accelEvent_t event, accelStream_t stream) {
  return entry([&] {
    if (event == nullptr || stream == nullptr) {
      return invalid("accelEventRecord", "an argument is null");
    }
    Recording recording;
    recording.stream = stream;
    recording.captured = capture_point(stream);
    if (recording.captured.capture != nullptr && event->shared != nullptr) {
      return forbid(stream, "accelEventRecord"); // what another process waits for must run
    }
    if (recording.captured.capture == nullptr) {
      recording.timing = event->timing ? std::make_shared<Timing>() : nullptr;
      if (event->shared != nullptr && (recording.shared = event->shared->begin()) == 0) {
        return accelErrorNotSupported;
      }
      const Marker marker{recording.timing, event->shared, recording.shared};
      if (const accelError_t code = enqueue(
              stream, make_info("record_event", accelEngineHost), marker, &recording.ticket)) {
        if (event->shared != nullptr) {
          event->shared->complete(recording.shared);
        }
        return code;
      }
    }
    std::lock_guard<std::mutex> lock(event->mutex);
    std::swap(event->recording, recording);
    if (event->shared != nullptr) {
      event->shared->publish(event->recording.shared);
    }
    return accelSuccess;
  });
}

extern "C" accelError_t accelStreamWaitEvent(accelStream_t stream, accelEvent_t event) {
  return entry([&] {
    if (event == nullptr || stream == nullptr) {
      return invalid("accelStreamWaitEvent", "an argument is null");
    }
    if (Foreign foreign = event->foreign()) {
      if (const accelError_t code = forbid_outside_event(stream)) {
        return code;
      }
      trace_foreign(stream);
      return foreign.complete() ? accelSuccess
                                : enqueue(
                                      stream,
                                      make_info("wait_event", accelEngineHost),
                                      WaitForeign{std::move(foreign)},
                                      nullptr);
    }
    const Recording recording = event->get();
    if (recording.stream == nullptr) {
      return accelSuccess;
    }
    if (recording.captured.capture != nullptr) {
      return join_capture(stream, recording.captured);
    }
    if (const accelError_t code = forbid_outside_event(stream)) {
      return code;
    }
    return recording.stream == stream ? accelSuccess
                                      : wait_on_stream(stream, recording.stream, recording.ticket);
  });
}

extern "C" accelError_t accelEventQuery(accelEvent_t event) {
  return entry([&] {
    if (event == nullptr) {
      return invalid("accelEventQuery", "the event is null");
    }
    const Foreign foreign = event->foreign();
    const Recording recording = foreign ? Recording() : event->get();
    if (const accelError_t code = forbid_wait(recording, "accelEventQuery")) {
      return code;
    }
    if (!(foreign ? foreign.complete() : recording.complete())) {
      return fail(accelErrorNotReady, "accel: the event's stream has not passed it yet");
    }
    foreign ? trace_foreign(nullptr) : trace_complete(recording.stream, recording.ticket);
    return accelSuccess;
  });
}

extern "C" accelError_t accelEventSynchronize(accelEvent_t event, const char* caller) {
  return entry([&] {
    if (event == nullptr) {
      return invalid("accelEventSynchronize", "the event is null");
    }
    if (const Foreign foreign = event->foreign()) {
      if (const accelError_t code = forbid(nullptr, caller_or_unknown(caller))) {
        return code;
      }
      bool lost = false;
      host_poll(
          [&] { return foreign.complete() || (lost = foreign.lost()); }, caller_or_unknown(caller));
      if (lost) {
        return fail(accelErrorLaunchFailure, "%s", kLost);
      }
      trace_foreign(nullptr);
      return accelSuccess;
    }
    const Recording recording = event->get();
    if (const accelError_t code = forbid_wait(recording, caller_or_unknown(caller))) {
      return code;
    }
    return recording.stream == nullptr ? accelSuccess
                                       : wait_ticket(
                                             recording.stream,
                                             recording.ticket,
                                             caller_or_unknown(caller),
                                             recording.stream->device.resets.load());
  });
}

extern "C" accelError_t
accelEventElapsedTime(double* milliseconds, accelEvent_t start, accelEvent_t end) {
  return entry([&] {
    if (milliseconds == nullptr || start == nullptr || end == nullptr) {
      return invalid("accelEventElapsedTime", "an argument is null");
    }
    const Recording first = start->get();
    const Recording last = end->get();
    if (first.timing == nullptr || last.timing == nullptr) {
      return invalid(
          "accelEventElapsedTime",
          "both events must be made with timing enabled and recorded before");
    }
    if (&first.stream->device != &last.stream->device) {
      return invalid("accelEventElapsedTime", "the events are of different devices");
    }
    if (!first.complete() || !last.complete()) {
      return fail(
          accelErrorNotReady,
          "accel: accelEventElapsedTime: an event is not complete yet; synchronize it first");
    }
    const uint64_t begin = first.timing->nanoseconds.load();
    const uint64_t finish = last.timing->nanoseconds.load();
    if (begin == 0 || finish == 0) {
      return fail(
          accelErrorAborted,
          "accel: accelEventElapsedTime: the device was aborted before it passed an event");
    }
    *milliseconds = static_cast<double>(static_cast<int64_t>(finish - begin)) * 1e-6;
    return accelSuccess;
  });
}

extern "C" accelError_t accelIpcEventCreate(accelEvent_t* event) {
  return entry([&] {
    if (event == nullptr) {
      return invalid("accelIpcEventCreate", "the result pointer is null");
    }
    std::shared_ptr<SharedEvent> shared = SharedEvent::create();
    if (shared == nullptr) {
      return accelErrorNotSupported;
    }
    *event = new accelEvent(std::move(shared));
    return accelSuccess;
  });
}

extern "C" accelError_t accelIpcEventGetHandle(accelEvent_t event, accelIpcEventHandle* handle) {
  return entry([&] {
    if (event == nullptr || handle == nullptr || event->shared == nullptr) {
      return invalid("accelIpcEventGetHandle", "the event was not made for several processes");
    }
    event->shared->write_handle(handle);
    return accelSuccess;
  });
}

extern "C" accelError_t accelIpcEventOpen(const accelIpcEventHandle* handle, accelEvent_t* event) {
  return entry([&] {
    if (event == nullptr || handle == nullptr) {
      return invalid("accelIpcEventOpen", "an argument is null");
    }
    std::shared_ptr<SharedEvent> shared = SharedEvent::open(*handle);
    if (shared == nullptr) {
      return accelErrorInvalidValue;
    }
    *event = new accelEvent(std::move(shared));
    return accelSuccess;
  });
}
