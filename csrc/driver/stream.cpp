#include "stream.h"

#include <algorithm>

#include "launch.h"
#include "os_linux.h"
#include "process.h"
#include "trace.h"
#include "worker.h"

namespace accel::driver {

accelError_t
wait_ticket(accelStream_t stream, uint64_t ticket, const char* caller, uint32_t since) {
  if (const accelError_t code = host_wait(stream, ticket, caller, since)) {
    return code;
  }
  trace_complete(stream, ticket);
  return raise(stream->failure.find(ticket));
}

namespace {

// The host's address of a 32-bit word that workers may touch, or null with the message set.
std::atomic<uint32_t>* find_word(const char* function, void* address) {
  const uintptr_t value = reinterpret_cast<uintptr_t>(address);
  const Located place = locate(value);
  const bool usable = place.device >= 0 || place.kind == accelMemoryPinned;
  if (!usable || value % sizeof(uint32_t) != 0) {
    fail(
        accelErrorInvalidValue,
        "accel: %s: %p is not a 4-byte aligned address of device or pinned memory",
        function,
        address);
    return nullptr;
  }
  const intptr_t offset = place.kind == accelMemoryDevice ? g_chip->map.offset() : 0;
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  return reinterpret_cast<std::atomic<uint32_t>*>(value + offset);
}

struct WaitValue {
  const std::atomic<uint32_t>* word;
  uint32_t value;

  accelError_t run() const {
    const std::atomic<uint32_t>& aborted = stream_of_this_thread()->device.aborted;
    // Memory that anybody may write has no futex to wait on: longer and longer naps instead.
    constexpr uint64_t kLongestNap = 200'000;
    uint64_t nap = 10'000;
    for (int i = 0; word->load(std::memory_order_acquire) < value; ++i) {
      if (aborted.load() != 0) {
        return accelErrorAborted;
      }
      if (i < kPauses) {
        os::pause();
      } else if (i < kPauses + kYields) {
        os::yield();
      } else {
        os::futex_wait(aborted, 0, nap);
        nap = std::min(2 * nap, kLongestNap);
      }
    }
    return accelSuccess;
  }
};

struct WriteValue {
  std::atomic<uint32_t>* word;
  uint32_t value;

  accelError_t run() const {
    word->store(value, std::memory_order_release);
    return accelSuccess;
  }
};

struct Sleep {
  uint64_t nanoseconds;

  accelError_t run() const {
    const std::atomic<uint32_t>& aborted = stream_of_this_thread()->device.aborted;
    const uint64_t begin = os::now();
    for (uint64_t past = 0; past < nanoseconds && aborted.load() == 0; past = os::now() - begin) {
      os::futex_wait(aborted, 0, nanoseconds - past);
    }
    return accelSuccess;
  }
};

} // namespace

} // namespace accel::driver

using namespace accel::driver;

extern "C" accelError_t accelStreamCreate(int device, int priority, accelStream_t* stream) {
  return entry([&] {
    if (stream == nullptr) {
      return invalid("accelStreamCreate", "the result pointer is null");
    }
    Device* owner = find_device(device);
    if (owner == nullptr) {
      return accelErrorInvalidDevice;
    }
    *stream = owner->add_stream(priority);
    return accelSuccess;
  });
}

extern "C" accelError_t accelStreamDestroy(accelStream_t stream) {
  return entry([&] {
    if (stream == nullptr) {
      return invalid("accelStreamDestroy", "the stream is null");
    }
    if (const accelError_t code = forbid(stream, "accelStreamDestroy")) {
      return code;
    }
    {
      std::lock_guard<std::mutex> lock(stream->producer);
      stream->destroyed = true;
    }
    const uint32_t since = stream->device.resets.load();
    const accelError_t code =
        wait_ticket(stream, stream->enqueued.load(), "accelStreamDestroy", since);
    if (stream->ring.empty()) { // not after an abort that left a kernel running
      std::lock_guard<std::mutex> lock(stream->producer);
      stream->ring.close();
    }
    return code;
  });
}

extern "C" int accelStreamGetDevice(accelStream_t stream) {
  if (g_chip != nullptr && stream != nullptr) {
    for (const auto& device : g_chip->devices) {
      const std::vector<accelStream_t> known = device->streams();
      if (std::find(known.begin(), known.end(), stream) != known.end()) {
        return device->index;
      }
    }
  }
  return -1; // a handle of nobody's is not looked into
}

extern "C" int accelStreamGetPriority(accelStream_t stream) {
  return stream == nullptr ? 0 : stream->priority;
}

extern "C" accelError_t
accelStreamGetTickets(accelStream_t stream, uint64_t* enqueued, uint64_t* completed) {
  return entry([&] {
    if (stream == nullptr) {
      return invalid("accelStreamGetTickets", "the stream is null");
    }
    // In this order: what is complete was enqueued before.
    if (completed != nullptr) {
      *completed = stream->completion.value();
    }
    if (enqueued != nullptr) {
      *enqueued = stream->enqueued.load(std::memory_order_acquire);
    }
    return accelSuccess;
  });
}

extern "C" accelError_t accelStreamQuery(accelStream_t stream) {
  return entry([&] {
    if (stream == nullptr) {
      return invalid("accelStreamQuery", "the stream is null");
    }
    if (const accelError_t code = forbid(stream, "accelStreamQuery")) {
      return code;
    }
    const uint64_t newest = stream->enqueued.load();
    if (stream->completion.value() < newest) {
      return fail(accelErrorNotReady, "accel: the stream has unfinished work");
    }
    trace_complete(stream, newest);
    return accelSuccess;
  });
}

extern "C" accelError_t accelStreamSynchronize(accelStream_t stream, const char* caller) {
  return entry([&] {
    if (stream == nullptr) {
      return invalid("accelStreamSynchronize", "the stream is null");
    }
    if (const accelError_t code = forbid(stream, caller_or_unknown(caller))) {
      return code;
    }
    const uint32_t since = stream->device.resets.load();
    return wait_ticket(stream, stream->enqueued.load(), caller_or_unknown(caller), since);
  });
}

extern "C" accelError_t
accelStreamWaitTicket(accelStream_t stream, uint64_t ticket, const char* caller) {
  return entry([&] {
    if (stream == nullptr || ticket > stream->enqueued.load()) {
      return invalid("accelStreamWaitTicket", "the stream is null or has not issued the ticket");
    }
    // A ticket is of work that runs, also on a stream that captures now.
    if (const accelError_t code = forbid(nullptr, caller_or_unknown(caller))) {
      return code;
    }
    return wait_ticket(stream, ticket, caller_or_unknown(caller), stream->device.resets.load());
  });
}

extern "C" accelError_t
accelStreamWaitValue32(accelStream_t stream, void* address, uint32_t value) {
  return entry([&] {
    if (stream == nullptr) {
      return invalid("accelStreamWaitValue32", "the stream is null");
    }
    const std::atomic<uint32_t>* word = find_word("accelStreamWaitValue32", address);
    if (word == nullptr) {
      return accelErrorInvalidValue;
    }
    return enqueue(
        stream, make_info("wait_value", accelEngineHost), WaitValue{word, value}, nullptr);
  });
}

extern "C" accelError_t
accelStreamWriteValue32(accelStream_t stream, void* address, uint32_t value) {
  return entry([&] {
    if (stream == nullptr) {
      return invalid("accelStreamWriteValue32", "the stream is null");
    }
    std::atomic<uint32_t>* word = find_word("accelStreamWriteValue32", address);
    if (word == nullptr) {
      return accelErrorInvalidValue;
    }
    return enqueue(
        stream, make_info("write_value", accelEngineHost), WriteValue{word, value}, nullptr);
  });
}

extern "C" accelError_t accelStreamSleep(accelStream_t stream, uint64_t nanoseconds) {
  return entry([&] {
    if (stream == nullptr) {
      return invalid("accelStreamSleep", "the stream is null");
    }
    return enqueue(stream, make_info("sleep", accelEngineHost), Sleep{nanoseconds}, nullptr);
  });
}
