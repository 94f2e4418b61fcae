// The state of the calling thread that CPU kernels depend on; it travels with each record to the
// worker.
#pragma once

#include <cstdint>

namespace accel {

struct HostState {
  int32_t threads; // size of an intra-op team: torch.set_num_threads, or ACCEL_THREADS
  uint32_t control; // floating point control: rounding, flush-to-zero (torch.set_flush_denormal)

  static HostState of_this_thread();
};

// Puts the state in force on this thread until the end of the scope.
class ApplyHostState {
 public:
  explicit ApplyHostState(const HostState& state);
  ~ApplyHostState();
  ApplyHostState(const ApplyHostState&) = delete;
  ApplyHostState& operator=(const ApplyHostState&) = delete;

 private:
  uint32_t saved_control_;
};

} // namespace accel
