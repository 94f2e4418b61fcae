// The stream sanitizer: finds accesses that touch the same bytes, of which one writes, and that
// nothing orders. It subscribes to the chip's trace and looks at what is enqueued, never at when it
// runs: what it finds does not depend on the schedule.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "report.h"

namespace accel::sanitizer {

enum class Mode { kOff, kRaise, kWarn };

// Starts anew, or changes the mode. What was enqueued before is not known.
void enable(Mode mode);
// Forgets everything but the reports.
void disable();
Mode mode();

// The races found so far; with `clear`, none afterwards.
std::vector<Report> reports(bool clear);

// The host reads (or writes) a CPU tensor without an operator that shows it: checks pinned memory,
// and throws or warns. Nothing while it is off.
void host_access(const at::Tensor& tensor, const char* name, bool write);

struct Stats {
  size_t accesses = 0; // remembered
  size_t clocks = 0;
  size_t subscribers = 0; // of ours
};
Stats stats();

} // namespace accel::sanitizer
