// Errors that a CPU kernel raises whatever the values are: raised at the call, by the kernel's
// rules and in its words, instead of on the worker (codegen/generate.py, HOST_CHECKS).
#pragma once

#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>

namespace accel {

// addmm's input must expand to the product's shape.
inline void check_addend(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2) {
  const std::array<int64_t, 2> sizes{mat1.sizes()[0], mat2.sizes()[1]};
  if (C10_UNLIKELY(!at::is_expandable_to(self.sizes(), sizes))) {
    self.expand(sizes); // raises
  }
}

// mean divides in place.
inline void check_mean(const at::Tensor& out) {
  TORCH_CHECK(
      out.is_floating_point() || out.is_complex(),
      "result type Float can't be cast to the desired output type ",
      out.scalar_type());
}

} // namespace accel
