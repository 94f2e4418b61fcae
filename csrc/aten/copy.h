#pragma once

#include <ATen/core/Tensor.h>

namespace accel {

// aten::copy_ where self or src is on accel: converts dtype, follows strides and broadcasting,
// honours conj and neg bits.
at::Tensor& copy_(at::Tensor& self, const at::Tensor& src, bool non_blocking);

} // namespace accel
