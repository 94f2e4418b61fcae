// The ACCEL_* variables that the chip reads.
#pragma once

#include <cstdint>
#include <optional>

#include "accel.h"

namespace accel::driver {

constexpr int kMaxDevices = 64;
constexpr uint64_t kSegmentBytes = uint64_t{2} << 20; // granule of accelMalloc
constexpr uint64_t kMaxCores = 1024;
constexpr uint64_t kDefaultWatchdogSeconds = 60;
constexpr uint64_t kDefaultSramBytes = uint64_t{2} << 20;
constexpr uint64_t kMostSramBytes = uint64_t{1} << 30;

struct Config {
  int devices = 1; // ACCEL_DEVICES, ACCEL_VISIBLE_DEVICES
  uint64_t memory = 0; // ACCEL_MEMORY: bytes per device, a multiple of kSegmentBytes
  bool launch_blocking = false; // ACCEL_LAUNCH_BLOCKING
  uint64_t delay = 0; // ACCEL_DELAY_US, in nanoseconds: workers wait before each record
  std::optional<uint64_t> schedule_seed; // ACCEL_SCHEDULE_SEED: workers wait at random
  uint32_t cores = 1; // ACCEL_CORES: programs of a grid that run at the same time
  uint64_t watchdog =
      0; // ACCEL_WATCHDOG_S, in nanoseconds: a waiting loop of a grid ends; 0: never
  uint64_t sram = 0; // ACCEL_SRAM: bytes of scratch memory per core, a multiple of a page
};

// Reads the environment. An unusable value is accelErrorConfig, with a text naming the variable,
// the value and what is accepted; an empty one counts as unset.
accelError_t read_config(Config* config);

} // namespace accel::driver
