// Operators that compute each element from the elements at its place.
#include <ATen/ExpandUtils.h>
#include <ATen/ops/result_type.h>

#include "iterate.h"

namespace accel {

namespace {

// ---- Shape functions

Outputs boolean(const at::Tensor& self) {
  return elementwise({self}, at::kBool);
}

Outputs boolean_binary(const at::Tensor& self, const at::Tensor& other) {
  return elementwise({self, other}, at::kBool);
}

// abs and angle of complex numbers are real.
Outputs real_valued(const at::Tensor& self) {
  return elementwise({self}, c10::toRealValueType(self.scalar_type()));
}

Outputs like(const at::Tensor& self) {
  return outputs(make_like(self));
}

// Integers have rules of their own about the limits.
Outputs hardtanh(const at::Tensor& self) {
  return self.is_floating_point() ? like(self) : decline();
}

Outputs boolean_like(const at::Tensor& self) {
  return outputs(make_like(self, at::kBool));
}

Outputs inplace(const at::Tensor&) {
  return outputs();
}

Outputs where(const at::Tensor& condition, const at::Tensor& self, const at::Tensor& other) {
  if (condition.scalar_type() != at::kBool) {
    return decline();
  }
  return elementwise({condition, self, other}, at::result_type(self, other));
}

bool expands_to(const at::Tensor& source, const at::Tensor& target) {
  return at::is_expandable_to(source.sizes(), target.sizes());
}

Outputs masked_fill_(const at::Tensor& self, const at::Tensor& mask) {
  if (mask.scalar_type() != at::kBool || !expands_to(mask, self)) {
    return decline();
  }
  return outputs();
}

// ---- Rows

const ShapeRow kRows[] = {
    {"abs.out", shape<real_valued>, per_output<1>},
    {"hardtanh", shape<hardtanh>, per_output<2>},
    {"isnan", shape<boolean_like>, per_output<1>},
    {"logical_and.out", shape<boolean_binary>, per_output<1>},
    {"logical_not.out", shape<boolean>, per_output<1>},
    {"logical_or.out", shape<boolean_binary>, per_output<1>},
    {"logical_xor.out", shape<boolean_binary>, per_output<1>},
    {"masked_fill_.Scalar", shape<masked_fill_>, no_flops},
    {"masked_fill_.Tensor", shape<masked_fill_>, no_flops},
    {"relu", shape<like>, per_output<1>},
    {"relu_", shape<inplace>, per_output<1>},
    {"where.self", shape<where>, no_flops},
    {"where.self_out", shape<where>, no_flops},
};

} // namespace

c10::ArrayRef<ShapeRow> pointwise_rows() {
  return kRows;
}

} // namespace accel
