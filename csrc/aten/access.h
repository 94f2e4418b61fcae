// What a launch touches of a tensor, for tracing, the sanitizer and performance models.
#pragma once

#include <ATen/core/Tensor.h>

#include "../driver/accel.h"

namespace accel {

// The bytes between a device or pinned tensor's first and last element; where it is strided, those
// that its elements lie in. `mode`: accelAccessRead | accelAccessWrite.
accelAccess access_of(const at::Tensor& tensor, uint32_t mode);
// The same of a view that begins with `base` and has sizes and strides of its own, in elements.
accelAccess
access_of(const at::Tensor& base, at::IntArrayRef sizes, at::IntArrayRef strides, uint32_t mode);

} // namespace accel
