#include "call.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>

#include "../runtime/allocator.h"

namespace accel {

namespace {
constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);
}

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  const auto status = at::get_overlap_status(a, b);
  return status == at::MemOverlapStatus::Full || status == at::MemOverlapStatus::Partial;
}

at::Tensor make(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::detail::empty_generic(sizes, device_allocator(), kKeys, dtype, std::nullopt);
}

at::Tensor make(at::IntArrayRef sizes, at::ScalarType dtype, at::MemoryFormat format) {
  return at::detail::empty_generic(sizes, device_allocator(), kKeys, dtype, format);
}

at::Tensor make_strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype) {
  return at::detail::empty_strided_generic(sizes, strides, device_allocator(), kKeys, dtype);
}

at::Tensor make_like(const at::Tensor& self) {
  return make_like(self, self.scalar_type());
}

at::Tensor make_like(const at::Tensor& self, at::ScalarType dtype) {
  if (self.is_non_overlapping_and_dense()) { // also strides that say nothing, of one element
    return make_strided(self.sizes(), self.strides(), dtype);
  }
  return make_strided(self.sizes(), at::infer_dense_strides(self.sizes(), self.strides()), dtype);
}

at::Tensor resized(const at::Tensor& out, at::IntArrayRef sizes) {
  out.resize_(sizes);
  return out;
}

} // namespace accel
