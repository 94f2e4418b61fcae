// Warnings of kernels. A worker has no Python and no warnings filter, so what a kernel warns of is
// kept and emitted again on the host thread of the next launch or synchronisation.
#pragma once

#include <c10/util/Exception.h>

namespace accel {

// Collects the warnings of this thread while alive.
class CollectWarnings {
 public:
  CollectWarnings();
  ~CollectWarnings() = default;

 private:
  c10::WarningUtils::WarningHandlerGuard guard_;
};

// Drops the warnings of this thread while alive.
class IgnoreWarnings : c10::WarningHandler {
 public:
  IgnoreWarnings() : guard_(this) {}

 private:
  void process(const c10::Warning&) override {}

  c10::WarningUtils::WarningHandlerGuard guard_;
};

// Emits what was collected on any thread, in order. One relaxed load when there is nothing.
void emit_collected_warnings();

} // namespace accel
