// Explains host accesses to device memory.
#pragma once

#include <cstdint>

namespace accel::driver {

// Prints what lies at the faulting address if it is the chip's. Async-signal-safe.
void explain_fault(uintptr_t address);

} // namespace accel::driver
