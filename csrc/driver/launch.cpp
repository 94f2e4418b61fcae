#include "launch.h"

#include <algorithm>
#include <cstring>

#include "process.h"
#include "stream.h"
#include "trace.h"
#include "worker.h"

namespace accel::driver {

std::atomic<bool> g_launch_blocking{false};

namespace {

std::atomic<uint64_t> g_correlation{0};

thread_local char t_self;

constexpr size_t align(size_t bytes) {
  return (bytes + 15) / 16 * 16;
}

// True if this thread has begun a launch on the stream. Its commit or cancel unlocks even if the
// process began to shut down in between.
bool holds(accelStream_t stream) {
  return stream != nullptr && g_state.load() != State::kForked &&
      stream->holder.load(std::memory_order_relaxed) == this_thread();
}

// Reserves room, waiting without the lock while there is none, or a node while the stream captures.
// Holds `lock` on success.
accelError_t
reserve(accelStream_t stream, size_t bytes, std::unique_lock<std::mutex>& lock, Record** record) {
  while (true) {
    lock.lock();
    if (stream->destroyed) {
      return invalid("accelLaunchBegin", "the stream was destroyed");
    }
    if (stream->captured.capture != nullptr) {
      *record = reserve_node(*stream);
      return *record != nullptr ? accelSuccess : accelErrorCapture;
    }
    if (!stream->ring.open()) {
      return fail(accelErrorOutOfMemory, "accel: no memory for a stream's queue");
    }
    const uint32_t since = stream->device.resets.load();
    // Read first: if the ring is full, a record after this ticket is unfinished.
    const uint64_t completed = stream->completion.value();
    *record = stream->ring.reserve(bytes);
    if (*record != nullptr) {
      return accelSuccess;
    }
    lock.unlock();
    if (stream_of_this_thread() != nullptr) {
      return fail(
          accelErrorNotSupported,
          "accel: accelLaunchBegin: the stream's queue is full and a kernel cannot wait for it");
    }
    if (const accelError_t code = host_wait(stream, completed + 1, "launch", since)) {
      return code;
    }
  }
}

// Asks the subscribers whether the launch may be.
accelError_t announce(accelStream_t stream, const accelLaunchInfo& info) {
  accelTraceEvent event{};
  event.phase = accelTraceLaunch;
  event.stream = stream;
  event.info = &info;
  const CapturePoint point = capture_point(stream);
  if (point.capture != nullptr) {
    event.capture = point.capture->id;
    event.dependencies = point.frontier.data();
    event.num_dependencies = static_cast<uint32_t>(point.frontier.size());
  }
  return publish(event);
}

} // namespace

const void* this_thread() {
  return &t_self;
}

accelLaunchInfo make_info(const char* name, accelEngine engine) {
  accelLaunchInfo info{};
  info.size = sizeof(info);
  info.name = name;
  info.engine = engine;
  info.cores = -1;
  std::fill(std::begin(info.bytes), std::end(info.bytes), -1);
  std::fill(std::begin(info.flops), std::end(info.flops), -1);
  return info;
}

accelError_t begin_launch(accelStream_t stream, const accelLaunch& launch, void** payload) {
  if (holds(stream)) {
    return fail(
        accelErrorNotSupported,
        "accel: accelLaunchBegin: this thread has already begun a launch on the stream; commit or "
        "cancel it first");
  }
  if (traced(accelTraceLaunch)) {
    if (const accelError_t code = announce(stream, *launch.info)) {
      return code;
    }
  }
  const size_t accesses = align(launch.info->num_accesses * sizeof(accelAccess));
  const size_t body = accesses + align(launch.payload_bytes);
  const bool large = sizeof(Record) + body > Ring::kLargestRecord;
  void* heap = large ? ::operator new(body, std::align_val_t(16)) : nullptr;

  std::unique_lock<std::mutex> lock(stream->producer, std::defer_lock);
  Record* record = nullptr;
  if (const accelError_t code =
          reserve(stream, sizeof(Record) + (large ? 0 : body), lock, &record)) {
    ::operator delete(heap, std::align_val_t(16));
    return code;
  }
  if (heap == nullptr && stream->captured.reserved != nullptr) {
    heap = ::operator new(body, std::align_val_t(16)); // a node owns its payload
  }
  std::byte* const place = heap != nullptr ? static_cast<std::byte*>(heap)
                                           : reinterpret_cast<std::byte*>(record) + sizeof(Record);
  record->invoke = launch.invoke;
  record->destroy = launch.destroy;
  record->payload = place + accesses;
  record->heap = heap;
  record->info = *launch.info;
  record->info.size = sizeof(accelLaunchInfo);
  record->info.correlation = g_correlation.fetch_add(1, std::memory_order_relaxed) + 1;
  record->info.accesses = nullptr;
  if (launch.info->num_accesses != 0) {
    std::memcpy(place, launch.info->accesses, launch.info->num_accesses * sizeof(accelAccess));
    record->info.accesses = reinterpret_cast<const accelAccess*>(place);
  }
  stream->reserved = record;
  stream->holder.store(this_thread(), std::memory_order_relaxed);
  *payload = record->payload;
  lock.release(); // unlocked by commit or cancel
  return accelSuccess;
}

accelError_t commit_launch(accelStream_t stream, uint64_t* ticket) {
  if (stream->captured.reserved != nullptr) {
    const accelError_t code = commit_node(*stream);
    if (ticket != nullptr) {
      *ticket = stream->enqueued.load(std::memory_order_relaxed);
    }
    stream->holder.store(nullptr, std::memory_order_relaxed);
    stream->producer.unlock();
    return code;
  }
  Record* record = stream->reserved;
  const uint64_t mine = stream->enqueued.load(std::memory_order_relaxed) + 1;
  record->ticket = mine;
  trace(accelTraceEnqueue, stream, mine, record->info);
  stream->enqueued.store(mine, std::memory_order_release);
  stream->ring.publish();
  stream->holder.store(nullptr, std::memory_order_relaxed);
  stream->producer.unlock();
  if (ticket != nullptr) {
    *ticket = mine;
  }
  return attach_worker(*stream)
      ? accelSuccess
      : fail(accelErrorOutOfMemory, "accel: the system has no thread left for a stream's worker");
}

accelError_t wait_if_blocking(accelStream_t stream, uint64_t ticket) {
  if (!g_launch_blocking.load(std::memory_order_relaxed) || stream_of_this_thread() != nullptr ||
      stream->capture_id.load() != 0) {
    return accelSuccess;
  }
  // Not told to subscribers: the program has not asked to wait.
  if (const accelError_t code =
          host_wait(stream, ticket, "ACCEL_LAUNCH_BLOCKING", stream->device.resets.load())) {
    return code;
  }
  return raise(stream->failure.find(ticket));
}

} // namespace accel::driver

using namespace accel::driver;

extern "C" accelError_t
accelLaunchBegin(accelStream_t stream, const accelLaunch* launch, void** payload) {
  return entry([&] {
    if (stream == nullptr || launch == nullptr || payload == nullptr) {
      return invalid("accelLaunchBegin", "an argument is null");
    }
    const accelLaunchInfo* info = launch->info;
    if (launch->size < sizeof(accelLaunch) || info == nullptr ||
        info->size < sizeof(accelLaunchInfo)) {
      return invalid("accelLaunchBegin", "a struct's size is too small or the info is null");
    }
    if (launch->invoke == nullptr || info->name == nullptr ||
        (info->num_accesses != 0 && info->accesses == nullptr)) {
      return invalid("accelLaunchBegin", "invoke, name or accesses is null");
    }
    return begin_launch(stream, *launch, payload);
  });
}

extern "C" accelError_t accelLaunchCommit(accelStream_t stream, uint64_t* ticket) {
  return frame([&] {
    if (!holds(stream)) {
      if (const accelError_t code = enter()) {
        return code;
      }
      return fail(
          accelErrorNotSupported,
          "accel: accelLaunchCommit: this thread has begun no launch on the stream");
    }
    uint64_t mine = 0;
    if (const accelError_t code = commit_launch(stream, &mine)) {
      return code;
    }
    if (ticket != nullptr) {
      *ticket = mine;
    }
    return wait_if_blocking(stream, mine);
  });
}

extern "C" void accelLaunchCancel(accelStream_t stream) {
  if (holds(stream)) {
    if (stream->captured.reserved != nullptr) {
      stream->captured.reserved.reset();
    } else {
      ::operator delete(stream->reserved->heap, std::align_val_t(16));
    }
    stream->holder.store(nullptr, std::memory_order_relaxed);
    stream->producer.unlock();
  }
}

extern "C" int accelGetLaunchBlocking(void) {
  return g_launch_blocking.load() ? 1 : 0;
}

extern "C" void accelSetLaunchBlocking(int on) {
  (void)entry([&] {
    g_launch_blocking.store(on != 0);
    return accelSuccess;
  });
}
