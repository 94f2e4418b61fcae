// The device name "cuda" means accel while torch_accel.as_cuda() is in force.
#pragma once

#include <cstddef>

namespace accel {

// Makes every library that is loaded now read "cuda" and "cuda:1" as "accel" and "accel:1" where it
// makes a c10::Device from a string. Returns the number of places changed; 0 means that no name is
// read in a way that this can change. The caller serialises both functions.
size_t redirect_cuda_name();

// Puts back what redirect_cuda_name() changed.
void restore_cuda_name();

} // namespace accel
