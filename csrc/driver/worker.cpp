#include "worker.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "mix.h"
#include "os_linux.h"
#include "process.h"
#include "stream.h"
#include "trace.h"

namespace accel::driver {

namespace {

constexpr uint64_t kParkBeforeDetach = 50'000'000;
constexpr uint64_t kIdleBeforeEnd = 2'000'000'000;
constexpr uint64_t kMostRandomDelay = 200'000;

// The state of a stream's worker.
//
// No record is left lying (Dekker): the producer publishes, then reads the state; the worker
// changes the state, then looks at the ring again. All are sequentially consistent, so when a
// worker parks or detaches while a record is published, either it sees the record or the producer
// sees the new state, and wakes the worker or attaches another. Who detaches owns nothing of the
// stream any more; it takes part again only by the same compare-exchange as everybody else.
enum WorkerState : uint32_t { kDetached = 0, kRunning = 1, kParked = 2 };

// What this thread, a worker, serves and runs. One object: each access of another costs a call.
struct Running {
  accelStream_t stream = nullptr;
  uint64_t ticket = 0;
  uint64_t correlation = 0; // of the launch, for the nodes that it runs
};
thread_local Running t_running;
thread_local std::string t_kernel_error;

void delay(const accelStream& stream, uint64_t ticket) {
  const Config& config = g_chip->config;
  uint64_t time = config.delay;
  if (config.schedule_seed) {
    time += mix(mix(*config.schedule_seed + stream.id) + ticket) % kMostRandomDelay;
  }
  if (time != 0) {
    os::futex_wait(stream.device.aborted, 0, time);
  }
}

accelError_t invoke(const Record& record) {
  t_kernel_error.clear();
  try {
    return record.invoke(record.payload);
  } catch (const std::exception& error) {
    t_kernel_error = error.what();
  } catch (...) {
    t_kernel_error = "an exception of unknown type";
  }
  return accelErrorLaunchFailure;
}

// Runs a record, or a node of one, under the launch's ticket.
void run(accelStream& stream, const Record& record, uint64_t ticket, const accelLaunchInfo& info) {
  if (stream.device.aborted.load() != 0) {
    return;
  }
  trace(accelTraceBegin, &stream, ticket, info);
  accelError_t code = invoke(record);
  trace(accelTraceEnd, &stream, ticket, info);
  if (code == accelSuccess || stream.device.aborted.load() != 0) {
    return;
  }
  if (t_kernel_error.empty()) {
    t_kernel_error = "the kernel returned error " + std::to_string(code);
  }
  if (code == accelErrorNotReady) { // never a failure to a caller
    code = accelErrorLaunchFailure;
  }
  stream.failure.note(code, std::string(record.info.name) + ": " + t_kernel_error, ticket);
}

// Runs what is queued; true if there was anything.
bool drain(accelStream& stream) {
  Record* record = stream.ring.front();
  if (record == nullptr) {
    return false;
  }
  for (; record != nullptr; record = stream.ring.front()) {
    const uint64_t ticket = record->ticket;
    t_running.ticket = ticket;
    t_running.correlation = record->info.correlation;
    delay(stream, ticket);
    run(stream, *record, ticket, record->info);
    if (record->destroy != nullptr) {
      record->destroy(record->payload);
    }
    ::operator delete(record->heap, std::align_val_t(16));
    stream.ring.pop(record);
    stream.completion.advance(ticket);
  }
  return true;
}

// True when there is something to run, false when the stream has been idle for long.
bool await_record(accelStream& stream) {
  for (int i = 0; i < kPauses + kYields; ++i) {
    if (!stream.ring.empty()) {
      return true;
    }
    i < kPauses ? os::pause() : os::yield();
  }
  const uint32_t signal = stream.worker_signal.load();
  stream.worker.store(kParked);
  if (stream.ring.empty() && g_state.load() == State::kReady) {
    os::futex_wait(stream.worker_signal, signal, kParkBeforeDetach);
  }
  stream.worker.store(kRunning);
  return !stream.ring.empty();
}

void serve(accelStream& stream) {
  t_running.stream = &stream;
  while (true) {
    while (drain(stream) || await_record(stream)) {
    }
    stream.worker.store(kDetached);
    uint32_t detached = kDetached;
    if (stream.ring.empty() || !stream.worker.compare_exchange_strong(detached, kRunning)) {
      break;
    }
  }
  t_running.stream = nullptr;
}

// A thread of the pool, and the stream it is handed.
struct Worker {
  accelStream_t assigned = nullptr; // guarded by the pool's mutex
  std::atomic<uint32_t> signal{0};
};

struct Pool {
  std::mutex mutex; // a leaf
  std::vector<Worker*> idle;
  bool ending = false; // guarded by mutex
  std::atomic<uint32_t> threads{0};
};

Pool& pool() {
  static Pool* pool = new Pool();
  return *pool;
}

// The next stream to serve, or null after a time without one.
accelStream_t next_stream(Worker& worker) {
  Pool& workers = pool();
  {
    std::lock_guard<std::mutex> lock(workers.mutex);
    if (workers.ending) {
      return nullptr;
    }
    workers.idle.push_back(&worker);
  }
  const uint64_t deadline = os::now() + kIdleBeforeEnd;
  while (true) {
    const uint32_t signal = worker.signal.load();
    const uint64_t now = os::now();
    {
      std::lock_guard<std::mutex> lock(workers.mutex);
      if (worker.assigned != nullptr) {
        return std::exchange(worker.assigned, nullptr);
      }
      if (workers.ending || now >= deadline) {
        workers.idle.erase(std::find(workers.idle.begin(), workers.idle.end(), &worker));
        return nullptr;
      }
    }
    os::futex_wait(worker.signal, signal, deadline - now);
  }
}

void worker_main(void* argument) {
  {
    Worker worker;
    for (accelStream_t stream = static_cast<accelStream_t>(argument); stream != nullptr;
         stream = next_stream(worker)) {
      serve(*stream);
    }
  }
  Pool& workers = pool();
  workers.threads.fetch_sub(1);
  os::futex_wake_all(workers.threads);
}

bool hand_over(accelStream& stream) {
  Pool& workers = pool();
  {
    std::lock_guard<std::mutex> lock(workers.mutex);
    if (!workers.idle.empty()) {
      Worker* worker = workers.idle.back();
      workers.idle.pop_back();
      worker->assigned = &stream;
      // Woken under the lock: the thread cannot end, and its Worker with it, before it has it.
      worker->signal.fetch_add(1);
      os::futex_wake_all(worker->signal);
      return true;
    }
  }
  workers.threads.fetch_add(1);
  if (os::start_thread(worker_main, &stream)) {
    return true;
  }
  workers.threads.fetch_sub(1);
  return false;
}

} // namespace

bool attach_worker(accelStream& stream) {
  uint32_t state = stream.worker.load();
  if (state == kParked) {
    wake_worker(stream);
  } else if (
      state == kDetached && !stream.ring.empty() &&
      stream.worker.compare_exchange_strong(state, kRunning) && !hand_over(stream)) {
    stream.worker.store(kDetached);
    return false;
  }
  return true;
}

void run_node(const Node& node) {
  delay(*t_running.stream, mix(t_running.ticket) + node.record.ticket);
  if (!traced(accelTraceBegin) && !traced(accelTraceEnd)) {
    run(*t_running.stream, node.record, t_running.ticket, node.record.info);
    return;
  }
  accelLaunchInfo info = node.record.info;
  info.correlation = t_running.correlation;
  run(*t_running.stream, node.record, t_running.ticket, info);
}

void wake_worker(accelStream& stream) {
  stream.worker_signal.fetch_add(1);
  os::futex_wake_all(stream.worker_signal);
}

void end_workers(uint64_t deadline) {
  Pool& workers = pool();
  {
    std::lock_guard<std::mutex> lock(workers.mutex);
    workers.ending = true;
    for (Worker* worker : workers.idle) {
      worker->signal.fetch_add(1);
      os::futex_wake_all(worker->signal);
    }
  }
  for (uint32_t threads = workers.threads.load(); threads != 0; threads = workers.threads.load()) {
    const uint64_t now = os::now();
    if (now >= deadline) {
      return;
    }
    os::futex_wait(workers.threads, threads, deadline - now);
  }
}

accelStream_t stream_of_this_thread() {
  return t_running.stream;
}

} // namespace accel::driver

using namespace accel::driver;

extern "C" accelStream_t accelStreamOfThisThread(uint64_t* ticket) {
  const Running& running = t_running;
  if (ticket != nullptr) {
    *ticket = running.stream == nullptr ? 0 : running.ticket;
  }
  return running.stream;
}

extern "C" void accelSetKernelError(const char* message) {
  (void)frame([&] {
    t_kernel_error = message == nullptr ? "" : message;
    return accelSuccess;
  });
}
