// Elements in another order.
#include <ATen/WrapDimUtilsMulti.h>
#include <c10/core/MemoryFormat.h>

#include "../shapes.h"

namespace accel {

namespace {

using at::DimVector;
using at::IntArrayRef;

Outputs flip(const at::Tensor& self, IntArrayRef dims) {
  at::dim_list_to_bitset(dims, self.dim()); // raises as the kernel
  return outputs(make_like(self));
}

// ---- roll: a concatenation of two slices for each dimension

at::MemoryFormat format_of(IntArrayRef sizes, IntArrayRef strides) {
  return c10::is_channels_last_strides_2d(sizes, strides) ? at::MemoryFormat::ChannelsLast
      : c10::is_channels_last_strides_3d(sizes, strides)  ? at::MemoryFormat::ChannelsLast3d
                                                          : at::MemoryFormat::Contiguous;
}

// The result has the slices' memory format if it is the same.
at::Tensor rolled(const at::Tensor& self, IntArrayRef strides, int64_t shift, int64_t dim) {
  const int64_t size = self.size(dim);
  const int64_t second = ((size - shift) % size + size) % size;
  DimVector slice(self.sizes());
  slice[dim] = size - second;
  const auto format = format_of(slice, strides);
  slice[dim] = second;
  const bool same = format == format_of(slice, strides);
  return make(self.sizes(), self.scalar_type(), same ? format : at::MemoryFormat::Contiguous);
}

Outputs roll(const at::Tensor& self, IntArrayRef shifts, IntArrayRef dims) {
  if (dims.empty() && shifts.size() == 1) {
    return outputs(make(self.sizes(), self.scalar_type()));
  }
  if (shifts.empty() || shifts.size() != dims.size() || self.dim() == 0) {
    return decline();
  }
  for (const int64_t dim : dims) {
    if (dim < -self.dim() || dim >= self.dim()) {
      return decline();
    }
  }
  if (self.numel() == 0) {
    return outputs(make_like(self));
  }
  at::Tensor result = self;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t dim = dims[i] < 0 ? dims[i] + self.dim() : dims[i];
    result = rolled(self, result.strides(), shifts[i], dim);
  }
  return outputs(std::move(result));
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
    {"roll", shape<roll>, no_flops},
    {"unfold_backward", shape<unfold_backward>, per_input<1>},
};

} // namespace

c10::ArrayRef<ShapeRow> movement_rows() {
  return kRows;
}

} // namespace accel
