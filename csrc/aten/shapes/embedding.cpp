// Embeddings, bags of them, and their gradients.
#include <ATen/ops/_embedding_bag_backward_native.h>
#include <torch/library.h>

#include "../shapes.h"

namespace accel {

namespace {

enum Mode : int64_t { kSum = 0, kMean = 1, kMax = 2 };

bool is_index(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kLong || tensor.scalar_type() == at::kInt;
}

// ---- Embeddings (the forward is index_select)

Outputs dense_backward(const at::Tensor& grad, const at::Tensor& indices, int64_t num_weights) {
  if (!is_index(indices) || grad.dim() == 0 || num_weights < 0 ||
      grad.numel() != indices.numel() * grad.size(-1)) {
    return decline();
  }
  return outputs(make({num_weights, grad.size(-1)}, grad.scalar_type()));
}

Outputs renorm_(const at::Tensor& self, const at::Tensor& indices) {
  return self.dim() == 2 && is_index(indices) ? outputs() : decline();
}

// ---- Bags

bool is_bags(
    const at::Tensor& weight,
    const at::Tensor& indices,
    const at::Tensor& offsets,
    int64_t mode,
    const at::Tensor& scales,
    bool include_last) {
  const bool scaled = !scales.defined() ||
      (mode == kSum && scales.dim() == 1 && scales.numel() == indices.numel() &&
       scales.scalar_type() == weight.scalar_type());
  return weight.dim() == 2 && indices.dim() == 1 && offsets.dim() == 1 && is_index(indices) &&
      is_index(offsets) && mode >= kSum && mode <= kMax && scaled &&
      (!include_last || offsets.size(0) > 0);
}

// Sums in these dtypes go to a kernel that needs no bag of each index.
bool is_fast(const at::Tensor& weight, int64_t mode, const at::Tensor& scales, int64_t padding) {
  const auto dtype = weight.scalar_type();
  return mode == kSum && padding < 0 &&
      (dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16) &&
      weight.stride(1) == 1 && (!scales.defined() || scales.stride(0) == 1);
}

template <bool forward_only>
Outputs bags(
    const at::Tensor& weight,
    const at::Tensor& indices,
    const at::Tensor& offsets,
    bool,
    int64_t mode,
    bool,
    const at::Tensor& scales,
    bool include_last,
    int64_t padding) {
  if (!is_bags(weight, indices, offsets, mode, scales, include_last)) {
    return decline();
  }
  const auto dtype = c10::promoteTypes(indices.scalar_type(), offsets.scalar_type());
  const int64_t count = offsets.size(0) - include_last;
  const int64_t width = weight.size(1);
  const int64_t sizes = forward_only && mode == kSum ? offsets.size(0) : count;
  return outputs(
      make({count, width}, weight.scalar_type()),
      make({is_fast(weight, mode, scales, padding) ? 0 : indices.size(0)}, dtype),
      make({sizes}, dtype),
      mode == kMax ? make({count, width}, dtype) : make({sizes}, dtype));
}

bool is_bag_gradient(
    const at::Tensor& grad,
    const at::Tensor& indices,
    const at::Tensor& offset2bag,
    int64_t mode) {
  return grad.dim() == 2 && indices.dim() == 1 && is_index(indices) && offset2bag.dim() == 1 &&
      is_index(offset2bag) && mode >= kSum && mode <= kMax;
}

Outputs bags_dense_backward(
    const at::Tensor& grad,
    const at::Tensor& indices,
    const at::Tensor& offset2bag,
    const at::Tensor&,
    const at::Tensor&,
    int64_t num_weights,
    bool,
    int64_t mode) {
  if (!is_bag_gradient(grad, indices, offset2bag, mode) || num_weights < 0 ||
      offset2bag.numel() != indices.numel()) {
    return decline();
  }
  return outputs(make({num_weights, grad.size(1)}, grad.scalar_type()));
}

Outputs bags_scales_backward(
    const at::Tensor& grad,
    const at::Tensor& weight,
    const at::Tensor& indices,
    const at::Tensor& offsets,
    const at::Tensor& offset2bag,
    int64_t mode) {
  if (!is_bag_gradient(grad, indices, offset2bag, mode) || mode != kSum || weight.dim() != 2 ||
      grad.size(1) != weight.size(1) || grad.scalar_type() != weight.scalar_type() ||
      offsets.dim() != 1 || !is_index(offsets)) {
    return decline();
  }
  return outputs(make({indices.size(0)}, grad.scalar_type()));
}

// ---- Rows

// One addition for each element of a looked-up row.
template <size_t rows, size_t table>
int64_t lookup_flops(Arguments arguments, at::TensorList) {
  return arguments[rows].toTensor().numel() * arguments[table].toTensor().size(-1);
}

const ShapeRow kRows[] = {
    {"_embedding_bag", shape<bags<false>>, lookup_flops<1, 0>},
    {"_embedding_bag_dense_backward", shape<bags_dense_backward>, lookup_flops<1, 0>},
    {"_embedding_bag_forward_only", shape<bags<true>>, lookup_flops<1, 0>},
    {"_embedding_bag_per_sample_weights_backward", shape<bags_scales_backward>, lookup_flops<2, 0>},
    {"embedding_dense_backward", shape<dense_backward>, per_input<1>},
    {"embedding_renorm_", shape<renorm_>, unknown_flops},
};

} // namespace

c10::ArrayRef<ShapeRow> embedding_rows() {
  return kRows;
}

// Torch's own, which computes on no element: it finds the bag of each index and calls the dense
// gradient, a row above, or builds the sparse one of operators.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_embedding_bag_backward", TORCH_FN(at::native::_embedding_bag_backward_symint));
}

} // namespace accel
