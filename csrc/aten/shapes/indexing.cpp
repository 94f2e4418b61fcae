// Reading and writing by position or mask. Positions are looked at on the worker, as on CUDA; what
// is told without them is declined at the call.
#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/cat_meta.h>

#include "../shapes.h"
#include "../structured.h"
#include "iterate.h"

namespace accel {

namespace {

bool is_long(const at::Tensor& index) {
  return index.scalar_type() == at::kLong;
}

// Positions where there are none to point at.
bool out_of_nothing(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  return index.numel() > 0 && self.dim() > 0 && self.size(dim) == 0;
}

// ---- Reading

Outputs index_select(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  if (index.dim() > 1 || (self.dim() == 0 && index.numel() != 1) ||
      (!is_long(index) && index.scalar_type() != at::kInt) || out_of_nothing(self, dim, index)) {
    return decline();
  }
  at::DimVector sizes(self.sizes());
  if (self.dim() > 0) {
    sizes[dim] = index.numel();
  }
  return outputs(make(sizes, self.scalar_type()));
}

bool takes(const at::Tensor& self, const at::Tensor& index) {
  return is_long(index) && (self.numel() > 0 || index.numel() == 0);
}

Outputs take(const at::Tensor& self, const at::Tensor& index) {
  return takes(self, index) ? outputs(make(index.sizes(), self.scalar_type())) : decline();
}

Outputs take_out(const at::Tensor& self, const at::Tensor& index) {
  return takes(self, index) ? elementwise({index}, self.scalar_type()) : decline();
}

Outputs nonzero_static(const at::Tensor& self, int64_t size) {
  return size < 0 ? decline() : outputs(make({size, self.dim()}, at::kLong));
}

Outputs repeat_interleave(const at::Tensor& repeats, std::optional<int64_t> output_size) {
  if (!output_size || *output_size < 0 || repeats.dim() != 1 || repeats.numel() == 0 ||
      (!is_long(repeats) && repeats.scalar_type() != at::kInt)) {
    return decline(); // the result has as many elements as the repeats say
  }
  return outputs(make({*output_size}, repeats.scalar_type()));
}

Outputs stack(at::TensorList tensors, int64_t dim) {
  if (tensors.empty()) {
    return decline();
  }
  dim = at::maybe_wrap_dim(dim, tensors[0].dim() + 1);
  std::vector<at::Tensor> inputs;
  for (const auto& tensor : tensors) {
    if (tensor.sizes() != tensors[0].sizes()) {
      return decline();
    }
    inputs.push_back(tensor.unsqueeze(dim));
  }
  Functional<at::meta::structured_cat> op;
  op.meta(at::ITensorListRef(inputs), dim);
  return outputs(op.take());
}

// ---- Writing

Outputs
put_(const at::Tensor& self, const at::Tensor& index, const at::Tensor& source, bool accumulate) {
  const bool alert = !accumulate && at::globalContext().deterministicAlgorithms();
  return !alert && takes(self, index) && self.scalar_type() == source.scalar_type() &&
          source.numel() == index.numel()
      ? outputs()
      : decline();
}

bool fills(const at::Tensor& self, int64_t dim, const at::Tensor& index, bool complex_value) {
  return is_long(index) && index.dim() <= 1 && (self.is_complex() || !complex_value) &&
      !out_of_nothing(self, at::maybe_wrap_dim(dim, self.dim()), index) && !overlap(self, index);
}

Outputs
index_fill_(const at::Tensor& self, int64_t dim, const at::Tensor& index, at::Scalar value) {
  return fills(self, dim, index, value.isComplex()) ? outputs() : decline();
}

Outputs index_fill_tensor_(
    const at::Tensor& self,
    int64_t dim,
    const at::Tensor& index,
    const at::Tensor& value) {
  return value.dim() == 0 && fills(self, dim, index, value.is_complex()) ? outputs() : decline();
}

Outputs masked_scatter_(const at::Tensor& self, const at::Tensor& mask, const at::Tensor& source) {
  return mask.scalar_type() == at::kBool && self.scalar_type() == source.scalar_type() &&
          at::is_expandable_to(mask.sizes(), self.sizes())
      ? outputs()
      : decline();
}

Outputs
masked_scatter_backward(const at::Tensor& gradient, const at::Tensor& mask, at::IntArrayRef sizes) {
  return mask.scalar_type() == at::kBool && at::are_expandable(gradient.sizes(), mask.sizes())
      ? outputs(make(sizes, gradient.scalar_type()))
      : decline();
}

// ---- Rows

const ShapeRow kRows[] = {
    {"_stack", shape<stack>, no_flops},
    {"_stack.out", shape<stack>, no_flops},
    {"index_fill_.int_Scalar", shape<index_fill_>, no_flops},
    {"index_fill_.int_Tensor", shape<index_fill_tensor_>, no_flops},
    {"index_select", shape<index_select>, no_flops},
    {"index_select.out", shape<index_select>, no_flops},
    {"masked_scatter_", shape<masked_scatter_>, no_flops},
    {"masked_scatter_backward", shape<masked_scatter_backward>, no_flops},
    {"nonzero_static", shape<nonzero_static>, no_flops},
    {"nonzero_static.out", shape<nonzero_static>, no_flops},
    {"put_", shape<put_>, no_flops},
    {"repeat_interleave.Tensor", shape<repeat_interleave>, no_flops},
    {"take", shape<take>, no_flops},
    {"take.out", shape<take_out>, no_flops},
};

} // namespace

c10::ArrayRef<ShapeRow> indexing_rows() {
  return kRows;
}

} // namespace accel
