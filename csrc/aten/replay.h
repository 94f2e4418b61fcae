// ACCEL_REPLAY_TWICE=1: the worker runs a record twice where it only overwrites its outputs. The
// outputs are poisoned in between and must come out the same, which proves that payloads may be run
// again and that the list of accesses tells all that a record reads.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <utility>
#include <vector>

#include "../driver/accel.h"

namespace accel {

// True if the variable is set and the record writes, but reads nothing that it writes.
bool runs_twice(c10::ArrayRef<accelAccess> accesses);

// What the first run left in an output; made by it, compared after the second.
class FirstResult {
 public:
  // Keeps the elements of `alias` and poisons them.
  FirstResult(uint32_t operand, const at::Tensor& alias);
  // Throws unless the second run gave the same bits.
  void check(const at::Tensor& alias) const;
  uint32_t operand() const {
    return operand_;
  }

 private:
  uint32_t operand_;
  at::Tensor values_;
};

} // namespace accel
