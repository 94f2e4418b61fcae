// The state of the chip in this process, and the frame of every entry point.
#pragma once

#include <cxxabi.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "accel.h"
#include "address_map.h"
#include "block_table.h"
#include "config.h"
#include "device.h"
#include "error.h"
#include "os_linux.h"

namespace accel::driver {

enum class State : uint32_t { kClosed, kOpening, kReady, kShutDown, kForked };
extern std::atomic<State> g_state;

// Everything that accelInit makes. Leaked: threads may outlive main().
struct Chip {
  Chip(const Config& config, uint64_t window_bytes)
      : config(config),
        map(config.devices, config.memory, window_bytes),
        blocks(window_bytes),
        pinned(map.pinned().bytes, os::kPageBytes) {}
  bool valid() const {
    return map.valid() && blocks.valid();
  }

  const Config config;
  AddressMap map;
  BlockTable blocks;
  std::vector<std::unique_ptr<Device>> devices;
  std::mutex pinned_mutex; // a leaf
  RangeAllocator pinned;
};
// Valid unless the state is kClosed or kOpening.
extern Chip* g_chip;

accelError_t refuse(State state);
// accelSuccess while the chip may be used, else the reason why not.
inline accelError_t enter() {
  const State state = g_state.load(std::memory_order_acquire);
  return state == State::kReady ? accelSuccess : refuse(state);
}

// The frame of an entry point: lets no exception out. The forced unwinding of pthread_exit passes:
// Python ends a thread so that asks for the GIL while the interpreter exits.
template <class Body>
accelError_t frame(const Body& body) {
  try {
    return body();
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return fail_with_current_exception();
  }
}

// The frame of an entry point that needs the chip.
template <class Body>
accelError_t entry(const Body& body) {
  return frame([&] {
    const accelError_t code = enter();
    return code == accelSuccess ? body() : code;
  });
}

// The device of that index, or null with the message set.
Device* find_device(int index);

// What is at an address. Lock-free and async-signal-safe.
struct Located : Place {
  uint64_t end = 0; // of the memory that it is in, from the start of its window
};
Located locate(uintptr_t address) noexcept;

inline accelError_t invalid(const char* function, const char* problem) {
  return fail(accelErrorInvalidValue, "accel: %s: %s", function, problem);
}

} // namespace accel::driver
