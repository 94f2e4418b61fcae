// What the host does with pinned memory, seen by torch's observers (at::RecordFunction): they see
// the tensors of every operator on every thread, autograd's included, and cost nothing while none
// is installed. They are installed once a launch has touched pinned memory.
//
// An operator reads its CPU operands unless its schema calls them views, and writes those that it
// marks; only operators that have a kernel for the CPU are looked at, others are made of those.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "shadow.h"

namespace accel::sanitizer {

// Idempotent; locks.
void watch_operators();
void unwatch_operators();

// The bytes of a CPU tensor in pinned memory, or nothing. `name` outlives the access.
std::optional<Access> pinned_access(const at::Tensor& tensor, const char* name, bool write);

// The report of a race of such an access, if there is one to be told.
std::optional<std::string>
check_host_access(const at::Tensor& tensor, const char* name, bool write);

} // namespace accel::sanitizer
