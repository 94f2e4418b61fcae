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
void set_comb(const at::Tensor& tensor, accelAccess& access) {
  using Dimension = std::pair<uint64_t, uint64_t>; // stride and size, in bytes and elements
  c10::SmallVector<Dimension, 8> dimensions;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) > 1 && tensor.stride(d) != 0) {
      dimensions.emplace_back(tensor.stride(d) * tensor.element_size(), tensor.size(d));
    }
  }
  std::sort(dimensions.begin(), dimensions.end());
  uint64_t run = tensor.element_size();
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

} // namespace

accelAccess access_of(const at::Tensor& tensor, uint32_t mode) {
  const auto* const impl = tensor.unsafeGetTensorImpl();
  auto* const storage = impl->unsafe_storage().unsafeGetStorageImpl();
  const auto itemsize = impl->itemsize();
  const bool contiguous = impl->is_contiguous();
  const auto bytes = contiguous
      ? impl->numel() * itemsize
      : at::detail::computeStorageNbytes(impl->sizes(), impl->strides(), itemsize);
  const auto* const data =
      static_cast<const char*>(storage->data()) + impl->storage_offset() * itemsize;
  accelAccess access{reinterpret_cast<uint64_t>(storage), data, bytes, mode, 0, 0};
  if (!contiguous) {
    set_comb(tensor, access);
  }
  return access;
}

} // namespace accel
