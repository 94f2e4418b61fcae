#include "access.h"

#include <ATen/TensorUtils.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace accel {

namespace {

// Which bytes a strided tensor touches, as a comb: runs at a fixed pitch. Exact for slices of a
// matrix; elsewhere all that it touches, and maybe more.
void set_comb(
    at::IntArrayRef sizes,
    at::IntArrayRef strides,
    uint64_t itemsize,
    accelAccess& access) {
  using Dimension = std::pair<uint64_t, uint64_t>; // stride and size, in bytes and elements
  c10::SmallVector<Dimension, 8> dimensions;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] > 1 && strides[d] != 0) {
      dimensions.emplace_back(strides[d] * itemsize, sizes[d]);
    }
  }
  std::sort(dimensions.begin(), dimensions.end());
  uint64_t run = itemsize;
  size_t inner = 0;
  while (inner < dimensions.size() && dimensions[inner].first <= run) {
    run += dimensions[inner].first * (dimensions[inner].second - 1);
    ++inner;
  }
  uint64_t pitch = 0;
  for (size_t d = inner; d < dimensions.size(); ++d) {
    pitch = std::gcd(pitch, dimensions[d].first);
  }
  if (run < pitch) { // else the runs meet
    access.run = run;
    access.pitch = pitch;
  }
}

accelAccess make_access(const at::Tensor& base, uint64_t bytes, uint32_t mode) {
  const auto* const impl = base.unsafeGetTensorImpl();
  auto* const storage = impl->unsafe_storage().unsafeGetStorageImpl();
  const auto* const data =
      static_cast<const char*>(storage->data()) + impl->storage_offset() * impl->itemsize();
  return {reinterpret_cast<uint64_t>(storage), data, bytes, mode, 0, 0};
}

} // namespace

accelAccess access_of(const at::Tensor& tensor, uint32_t mode) {
  const auto* const impl = tensor.unsafeGetTensorImpl();
  return impl->is_contiguous() ? make_access(tensor, impl->numel() * impl->itemsize(), mode)
                               : access_of(tensor, impl->sizes(), impl->strides(), mode);
}

accelAccess
access_of(const at::Tensor& base, at::IntArrayRef sizes, at::IntArrayRef strides, uint32_t mode) {
  const auto itemsize = base.element_size();
  auto access = make_access(base, at::detail::computeStorageNbytes(sizes, strides, itemsize), mode);
  set_comb(sizes, strides, itemsize, access);
  return access;
}

} // namespace accel
