#pragma once

namespace accel {

// Registers the fallback: for the whole backend, and by name for the operators whose composite
// kernel would otherwise win over the CPU's kernel. Called once, after the static registrations of
// this library, which it leaves alone.
void register_fallback();

} // namespace accel
