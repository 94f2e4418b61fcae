#include "sparse_padding.h"

#include <ATen/native/SparseTensorUtils.h>
#include <ATen/ops/full.h>

#include <cstring>

namespace accel {

namespace {

at::Scalar padding_of(const at::Tensor& values) {
  return values.is_complex() ? at::Scalar(c10::complex<double>(-0.0, -0.0)) : at::Scalar(-0.0);
}

bool same_index(const at::Tensor& indices, int64_t a, int64_t b) {
  const auto index = indices.accessor<int64_t, 2>();
  for (int64_t dim = 0; dim < index.size(0); ++dim) {
    if (index[dim][a] != index[dim][b]) {
      return false;
    }
  }
  return true;
}

} // namespace

void copy_with_padding(const at::Tensor& sum, const at::Tensor& indices, const at::Tensor& values) {
  const auto found = sum._nnz();
  const auto spare = values.size(0) - found;
  indices.narrow(1, 0, found).copy_(sum._indices());
  values.narrow(0, 0, found).copy_(sum._values());
  indices.narrow(1, found, spare).copy_(indices.narrow(1, found - 1, 1));
  values.narrow(0, found, spare).fill_(padding_of(values));
}

bool cut_padding(const at::Tensor& tensor) {
  const auto indices = tensor._indices();
  const auto values = tensor._values();
  const auto nnz = tensor._nnz();
  if (tensor.is_coalesced() || nnz < 2 || !values.is_contiguous() ||
      !(values.is_floating_point() || values.is_complex())) {
    return false;
  }
  const auto padding = at::full(values.sizes().slice(1), padding_of(values), values.options());
  const auto row_bytes = padding.nbytes();
  const auto* const rows = static_cast<const char*>(values.const_data_ptr());
  auto kept = nnz;
  while (kept > 1 && same_index(indices, kept - 1, kept - 2) &&
         std::memcmp(rows + (kept - 1) * row_bytes, padding.const_data_ptr(), row_bytes) == 0) {
    --kept;
  }
  if (kept == nnz) {
    return false;
  }
  at::sparse::get_sparse_impl(tensor)->set_indices_and_values_unsafe(
      indices.narrow(1, 0, kept), values.narrow(0, 0, kept));
  tensor._coalesced_(false);
  return true;
}

} // namespace accel
