#include "replay.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

namespace accel {

namespace {

bool enabled() {
  static const bool value = [] {
    const char* const text = std::getenv("ACCEL_REPLAY_TWICE");
    const std::string given = text == nullptr ? "" : text;
    TORCH_CHECK(
        given.empty() || given == "0" || given == "1",
        "accel: ACCEL_REPLAY_TWICE must be 0 or 1, got '",
        given,
        "'");
    return given == "1";
  }();
  return value;
}

bool overlap(const accelAccess& a, const accelAccess& b) {
  const auto* const start_a = static_cast<const char*>(a.address);
  const auto* const start_b = static_cast<const char*>(b.address);
  return start_a < start_b + b.bytes && start_b < start_a + a.bytes;
}

at::Tensor copy_of(const at::Tensor& alias) {
  return alias.clone(at::MemoryFormat::Contiguous);
}

} // namespace

bool runs_twice(c10::ArrayRef<accelAccess> accesses) {
  if (C10_LIKELY(!enabled())) {
    return false;
  }
  const auto has = [](const accelAccess& access, uint32_t mode) {
    return (access.mode & mode) != 0;
  };
  bool writes = false;
  for (const auto& written : accesses) {
    if (!has(written, accelAccessWrite)) {
      continue;
    }
    writes = true;
    if (std::any_of(accesses.begin(), accesses.end(), [&](const auto& other) {
          return has(other, accelAccessRead) && overlap(written, other);
        })) {
      return false;
    }
  }
  return writes;
}

FirstResult::FirstResult(uint32_t operand, const at::Tensor& alias)
    : operand_(operand), values_(copy_of(alias)) {
  if (at::has_internal_overlap(alias) == at::MemOverlap::Yes) {
    return; // copy_ refuses it
  }
  auto poison = at::empty_like(values_);
  std::memset(poison.mutable_data_ptr(), 0xFF, poison.nbytes());
  alias.copy_(poison);
}

void FirstResult::check(const at::Tensor& alias) const {
  const auto again = copy_of(alias);
  TORCH_CHECK(
      std::memcmp(again.const_data_ptr(), values_.const_data_ptr(), values_.nbytes()) == 0,
      "accel: run a second time (ACCEL_REPLAY_TWICE=1), the kernel gave output ",
      operand_,
      " of shape ",
      values_.sizes(),
      " other values; it must leave its record as it is, overwrite all elements, and declare an "
      "output that it reads as reads() too");
}

} // namespace accel
