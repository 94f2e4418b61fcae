// The core pool: threads that run the programs of a grid beside the worker of its stream.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "accel_grid.h"

namespace accel::driver {

// A grid that a worker runs. Lives on the worker's stack.
struct Grid {
  accelGridFunction function;
  const void* args;
  const uint32_t* size; // programs along x, y, z
  uint64_t programs; // their product
  uint32_t cores; // at most so many threads; cooperative: as many as there are programs
  bool cooperative;
  std::atomic<uint32_t>& abort; // see accelGridContext::abort
  uint32_t order; // accelGridAscending ...
  uint64_t seed; // of the shuffled order

  std::atomic<uint64_t> next{0}; // claims so far; one more whenever a program ends
};

enum class GridEnd { kRan, kFaulted, kNoThreads, kNoMemory };

// Runs every program, or those before a fault, on this thread and others; `fault` is then that of
// the first program in ascending order that has one. Returns when no thread runs a program of it.
GridEnd run_grid(Grid& grid, accelGridFault* fault);

// Asks the threads to end and waits for it up to `deadline` (os::now()).
void end_cores(uint64_t deadline);

} // namespace accel::driver
