#include "process.h"

#include <algorithm>
#include <cstdlib>

#include "cores.h"
#include "ipc.h"
#include "launch.h"
#include "os_linux.h"
#include "worker.h"

namespace accel::driver {

std::atomic<State> g_state{State::kClosed};
Chip* g_chip = nullptr;

namespace {

constexpr int kExitDeadline = 2000; // milliseconds

std::mutex& init_mutex() {
  static std::mutex* mutex = new std::mutex();
  return *mutex;
}

void on_fork() {
  if (g_state.load() != State::kClosed) {
    g_state.store(State::kForked);
  }
  after_fork_in_child();
}

accelError_t open_chip(std::unique_ptr<Chip>* result) {
  Config config;
  if (const accelError_t code = read_config(&config)) {
    return code;
  }
  uint64_t window = kWindowBytes;
  auto chip = std::make_unique<Chip>(config, window);
  while (!chip->valid()) {
    if (window == kLeastWindowBytes || window / 4 < config.devices * config.memory) {
      return fail(
          accelErrorOutOfMemory,
          "accel: the system refused %llu GiB of address space for %d device(s) of %llu MiB; raise "
          "the limit (ulimit -v unlimited)",
          static_cast<unsigned long long>((2 * window + std::min(kPinnedBytes, window)) >> 30),
          config.devices,
          static_cast<unsigned long long>(config.memory >> 20));
    }
    window /= 4;
    chip.reset(); // gives the part back that it got
    chip = std::make_unique<Chip>(config, window);
  }
  for (int i = 0; i < config.devices; ++i) {
    const uint64_t slot = chip->map.slot_offset(i);
    chip->devices.push_back(
        std::make_unique<Device>(
            i,
            chip->map.device().base + slot,
            chip->map.host().base + slot,
            config.memory,
            chip->map.import_bytes()));
    if (!chip->devices.back()->open()) {
      return fail(
          accelErrorOutOfMemory,
          "accel: the system refused the %llu MiB of memory of accel:%d; lower ACCEL_MEMORY",
          static_cast<unsigned long long>(config.memory >> 20),
          i);
    }
  }
  *result = std::move(chip);
  return accelSuccess;
}

} // namespace

accelError_t refuse(State state) {
  switch (state) {
    case State::kForked:
      return fail(
          accelErrorForked,
          "Cannot use accel in a forked child process: use the 'spawn' start method");
    case State::kShutDown:
      return fail(accelErrorAborted, "accel: the process is shutting down");
    default:
      return fail(accelErrorNotSupported, "accel: accelInit must be called first");
  }
}

} // namespace accel::driver

using namespace accel::driver;

extern "C" accelError_t accelInit(void) {
  return frame([&] {
    const State before = g_state.load(std::memory_order_acquire);
    if (before == State::kReady) {
      return accelSuccess;
    }
    if (before == State::kForked || before == State::kShutDown) {
      return refuse(before); // in a forked child the lock may be held for ever
    }
    std::lock_guard<std::mutex> lock(init_mutex());
    if (g_state.load() != State::kClosed) {
      return g_state.load() == State::kReady ? accelSuccess : refuse(g_state.load());
    }
    static const bool registered = os::at_fork(before_fork, after_fork_in_parent, on_fork) &&
        std::atexit([] { accelShutdown(kExitDeadline); }) == 0;
    if (!registered) {
      return fail(
          accelErrorNotSupported, "accel: the system refused the handlers of fork and exit");
    }
    g_state.store(State::kOpening);
    std::unique_ptr<Chip> chip;
    const accelError_t code = frame([&] { return open_chip(&chip); });
    if (code == accelSuccess) {
      g_launch_blocking.store(chip->config.launch_blocking);
      g_chip = chip.release();
    }
    g_state.store(code == accelSuccess ? State::kReady : State::kClosed);
    return code;
  });
}

extern "C" int accelIsInitialized(void) {
  const State state = g_state.load(std::memory_order_acquire);
  return state == State::kReady || state == State::kShutDown ? 1 : 0;
}

extern "C" int accelInBadFork(void) {
  return g_state.load(std::memory_order_acquire) == State::kForked ? 1 : 0;
}

extern "C" void accelShutdown(int deadline_ms) {
  State ready = State::kReady;
  if (!g_state.compare_exchange_strong(ready, State::kShutDown)) {
    return;
  }
  (void)frame([&] {
    for (const auto& device : g_chip->devices) {
      device->abort();
    }
    const uint64_t deadline =
        os::now() + static_cast<uint64_t>(deadline_ms < 0 ? 0 : deadline_ms) * 1'000'000;
    end_workers(deadline);
    end_cores(deadline);
    return accelSuccess;
  });
}

extern "C" accelError_t accelGetDeviceCount(int* count) {
  return frame([&] {
    if (count == nullptr) {
      return invalid("accelGetDeviceCount", "the result pointer is null");
    }
    const State state = g_state.load(std::memory_order_acquire);
    if (state == State::kForked || state == State::kShutDown) {
      return refuse(state);
    }
    Config config;
    if (state == State::kReady) {
      config.devices = static_cast<int>(g_chip->devices.size());
    } else if (const accelError_t code = read_config(&config)) {
      return code;
    }
    *count = config.devices;
    return accelSuccess;
  });
}
