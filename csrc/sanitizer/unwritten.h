// Device memory that nothing has written since it was allocated, as the stream sees it: launches of
// all kinds mark what they write when they run, by their lists of accesses.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace accel::sanitizer {

// First byte, and the one behind the last.
using Range = std::pair<uintptr_t, uintptr_t>;

// Starts, once for the process: what was allocated before counts as written.
void track_unwritten();

// The parts of a range that nothing has written when the launch that this worker runs begins.
std::vector<Range> unwritten(uintptr_t begin, uint64_t bytes);

// The launch that this worker runs wrote these, and not all that its list of accesses says.
void wrote_only(const std::vector<Range>& ranges);

} // namespace accel::sanitizer
