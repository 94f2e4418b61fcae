// Operators that combine elements along dimensions.
#include <ATen/native/ReduceOpsUtils.h>

#include "../shapes.h"

namespace accel {

namespace {

using Dtype = std::optional<at::ScalarType>;

// The sizes of `self` without `dims`; raises as the kernel for dimensions that it has not.
at::DimVector reduced(const at::Tensor& self, at::OptionalIntArrayRef dims, bool keepdim) {
  const auto mask = at::native::make_dim_mask(dims, self.dim());
  return at::native::shape_from_dim_mask(self, mask, keepdim);
}

// ---- To one element

Outputs extremum(const at::Tensor& self) {
  if (self.numel() == 0 || self.is_complex()) {
    return decline();
  }
  return outputs(make({}, self.scalar_type()));
}

Outputs prod(const at::Tensor& self, Dtype dtype) {
  return outputs(make({}, at::native::get_dtype_from_self(self, dtype, /*promote_integers=*/true)));
}

Outputs trace(const at::Tensor& self) {
  return self.dim() == 2 ? prod(self, std::nullopt) : decline();
}

// ---- Along dimensions

Outputs nansum(const at::Tensor& self, at::OptionalIntArrayRef dims, bool keepdim, Dtype dtype) {
  if (self.is_complex()) {
    return decline();
  }
  return outputs(make(
      reduced(self, dims, keepdim),
      at::native::get_dtype_from_self(self, dtype, /*promote_integers=*/true)));
}

Outputs count_nonzero(const at::Tensor& self, at::IntArrayRef dims) {
  return outputs(make(reduced(self, dims, /*keepdim=*/false), at::kLong));
}

Outputs deviation(
    const at::Tensor& self,
    at::OptionalIntArrayRef dims,
    std::optional<at::Scalar>,
    bool keepdim) {
  const auto dtype = self.scalar_type();
  if (!at::isFloatingType(dtype) && !at::isComplexType(dtype)) {
    return decline();
  }
  return outputs(make(reduced(self, dims, keepdim), c10::toRealValueType(dtype)));
}

Outputs deviation_and_mean(
    const at::Tensor& self,
    at::OptionalIntArrayRef dims,
    std::optional<at::Scalar> correction,
    bool keepdim) {
  auto result = deviation(self, dims, correction, keepdim);
  if (result) {
    result->push_back(make((*result)[0].sizes(), self.scalar_type()));
  }
  return result;
}

int64_t diagonal_flops(Arguments arguments, at::TensorList) {
  const auto& self = arguments[0].toTensor();
  return std::min(self.size(0), self.size(1));
}

const ShapeRow kRows[] = {
    {"count_nonzero.dim_IntList", shape<count_nonzero>, per_input<1>},
    {"max", shape<extremum>, per_input<1>},
    {"max.unary_out", shape<extremum>, per_input<1>},
    {"min", shape<extremum>, per_input<1>},
    {"min.unary_out", shape<extremum>, per_input<1>},
    {"nansum", shape<nansum>, per_input<1>},
    {"nansum.out", shape<nansum>, per_input<1>},
    {"prod", shape<prod>, per_input<1>},
    {"std.correction", shape<deviation>, per_input<4>},
    {"std.correction_out", shape<deviation>, per_input<4>},
    {"std_mean.correction", shape<deviation_and_mean>, per_input<4>},
    {"trace", shape<trace>, diagonal_flops},
    {"var.correction", shape<deviation>, per_input<4>},
    {"var.correction_out", shape<deviation>, per_input<4>},
    {"var_mean.correction", shape<deviation_and_mean>, per_input<4>},
};

} // namespace

c10::ArrayRef<ShapeRow> reduction_rows() {
  return kRows;
}

} // namespace accel
