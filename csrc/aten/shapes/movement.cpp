// Elements in another order.
#include <ATen/WrapDimUtilsMulti.h>

#include "../shapes.h"

namespace accel {

namespace {

using at::DimVector;
using at::IntArrayRef;

Outputs flip(const at::Tensor& self, IntArrayRef dims) {
  at::dim_list_to_bitset(dims, self.dim()); // raises as the kernel
  return outputs(make_like(self));
}

// ---- narrow_copy

std::optional<DimVector>
narrowed(const at::Tensor& self, int64_t dim, int64_t start, int64_t length) {
  if (dim < -self.dim() || dim >= self.dim()) {
    return std::nullopt;
  }
  DimVector sizes(self.sizes());
  auto& size = sizes[dim < 0 ? dim + self.dim() : dim];
  if (start < -size || start > size || length < 0 ||
      (start < 0 ? start + size : start) > size - length) {
    return std::nullopt;
  }
  size = length;
  return sizes;
}

Outputs narrow_copy(const at::Tensor& self, int64_t dim, int64_t start, int64_t length) {
  const auto sizes = narrowed(self, dim, start, length);
  return sizes ? outputs(make(*sizes, self.scalar_type())) : decline();
}

Outputs narrow_copy_out(
    const at::Tensor& self,
    int64_t dim,
    int64_t start,
    int64_t length,
    const at::Tensor& out) {
  const auto sizes = narrowed(self, dim, start, length);
  if (!sizes || out.scalar_type() != self.scalar_type()) {
    return decline();
  }
  return outputs(resized(out, *sizes));
}

// ---- unfold

Outputs unfold_backward(
    const at::Tensor& grad,
    IntArrayRef input_sizes,
    int64_t dim,
    int64_t size,
    int64_t step) {
  const auto rank = static_cast<int64_t>(input_sizes.size());
  if (rank == 0 || dim < -rank || dim >= rank || size < 0 || step <= 0) {
    return decline();
  }
  DimVector unfolded(input_sizes);
  auto& length = unfolded[dim < 0 ? dim + rank : dim];
  if (size > length) {
    return decline();
  }
  length = (length - size) / step + 1;
  unfolded.push_back(size);
  if (grad.sizes() != unfolded) {
    return decline();
  }
  return outputs(make(input_sizes, grad.scalar_type()));
}

const ShapeRow kRows[] = {
    {"flip", shape<flip>, no_flops},
    {"narrow_copy", shape<narrow_copy>, no_flops},
    {"narrow_copy.out", shape<narrow_copy_out>, no_flops},
    {"unfold_backward", shape<unfold_backward>, per_input<1>},
};

} // namespace

c10::ArrayRef<ShapeRow> movement_rows() {
  return kRows;
}

} // namespace accel
