// Operators that compute each element from the elements at its place.
#include <ATen/ExpandUtils.h>
#include <ATen/ScalarOps.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/ops/result_type.h>
#include <c10/core/DefaultDtype.h>

#include "iterate.h"

namespace accel {

namespace {

// ---- Shape functions

// Truth values, in whatever dtype out= has.
Outputs boolean(const at::Tensor& self, const at::Tensor& out) {
  return elementwise({self}, out.scalar_type());
}

Outputs boolean_binary(const at::Tensor& self, const at::Tensor& other, const at::Tensor& out) {
  return elementwise({self, other}, out.scalar_type());
}

at::ScalarType floating(const at::Tensor& self) {
  return at::isIntegralType(self.scalar_type(), /*includeBool=*/true)
      ? c10::get_default_dtype_as_scalartype()
      : self.scalar_type();
}

// abs and angle of complex numbers are the real part of a complex result, copied into out=.
Outputs real_valued(const at::Tensor& self) {
  return self.is_complex() ? outputs(make(self.sizes(), c10::toRealValueType(self.scalar_type())))
                           : elementwise({self});
}

Outputs angle(const at::Tensor& self) {
  return self.is_complex() ? real_valued(self) : elementwise({self}, floating(self));
}

Outputs promoted(const at::Tensor& self) {
  return elementwise({self});
}

Outputs like(const at::Tensor& self) {
  return outputs(make_like(self));
}

// Integers have rules of their own about the limits.
// Bounds of integers are cast, and refused for unsigned ones below zero.
Outputs hardtanh(const at::Tensor& self, at::Scalar low, at::Scalar high) {
  const bool integers = at::isSignedType(self.scalar_type()) &&
      at::isIntegralType(self.scalar_type(), /*includeBool=*/false) && low.equal(low.toLong()) &&
      high.equal(high.toLong()) && std::abs(low.toDouble()) < 128 &&
      std::abs(high.toDouble()) < 128;
  return self.is_floating_point() || integers ? like(self) : decline();
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

Outputs
masked_fill_by_tensor_(const at::Tensor& self, const at::Tensor& mask, const at::Tensor& value) {
  const bool real = !value.is_complex() || self.is_complex();
  return value.dim() == 0 && real ? masked_fill_(self, mask) : decline();
}

// ---- Two operands, promoted to a common dtype

Outputs binary(const at::Tensor& self, const at::Tensor& other) {
  return elementwise({self, other});
}

Outputs binary_inplace(const at::Tensor& self, const at::Tensor& other) {
  return elementwise_inplace({self, other});
}

Outputs with_scalar(const at::Tensor& self, at::Scalar other) {
  return binary(self, at::native::wrapped_scalar_tensor(other));
}

Outputs with_scalar_inplace(const at::Tensor& self, at::Scalar other) {
  return binary_inplace(self, at::native::wrapped_scalar_tensor(other));
}

Outputs scalar_with(at::Scalar self, const at::Tensor& other) {
  return binary(at::native::wrapped_scalar_tensor(self), other);
}

Outputs reversed_sub(const at::Tensor& self, const at::Tensor& other, at::Scalar alpha) {
  at::native::sub_check(other, self);
  auto result = binary(other, self);
  at::native::alpha_check((*result)[0].scalar_type(), alpha);
  return result;
}

Outputs to_complex(const at::Tensor& real, const at::Tensor& imaginary) {
  const auto dtype = real.scalar_type();
  const bool known = dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf;
  if (!known || imaginary.scalar_type() != dtype) {
    return decline();
  }
  return elementwise({real, imaginary}, c10::toComplexType(dtype));
}

// ---- One operand

Outputs logit(const at::Tensor& self) {
  return self.is_complex() ? decline() : elementwise({self}, floating(self));
}

Outputs logit_(const at::Tensor& self) {
  return at::isFloatingType(self.scalar_type()) ? outputs() : decline();
}

Outputs nan_to_num(const at::Tensor& self) {
  return at::isIntegralType(self.scalar_type(), /*includeBool=*/true)
      ? outputs(make(self.sizes(), self.scalar_type()))
      : elementwise({self});
}

// The result of the composite function is copied into out=.
Outputs mvlgamma(const at::Tensor& self, int64_t p) {
  if (p < 1 || self.scalar_type() == at::kBool || self.is_complex()) {
    return decline();
  }
  return outputs(make(self.sizes(), floating(self)));
}

Outputs frexp(const at::Tensor& self, const at::Tensor& mantissa, const at::Tensor& exponent) {
  // One that is resized takes the order of one that is not.
  if (!at::isFloatingType(self.scalar_type()) ||
      (mantissa.sizes() == self.sizes()) != (exponent.sizes() == self.sizes())) {
    return decline();
  }
  auto result = elementwise({self});
  result->push_back((*elementwise({self}, at::kInt))[0]);
  return result;
}

// Gradients of samples; the arguments have one size.
Outputs of_equals(const at::Tensor& self, const at::Tensor& other) {
  if (self.sizes() != other.sizes() || self.scalar_type() != other.scalar_type()) {
    return decline();
  }
  return outputs(make(self.sizes(), self.scalar_type()));
}

Outputs of_three_equals(const at::Tensor& x, const at::Tensor& alpha, const at::Tensor& total) {
  return of_equals(x, alpha) ? of_equals(x, total) : decline();
}

// ---- Rows

const ShapeRow kRows[] = {
    {"__ilshift__.Scalar", shape<with_scalar_inplace>, per_output<1>},
    {"__ilshift__.Tensor", shape<binary_inplace>, per_output<1>},
    {"__irshift__.Scalar", shape<with_scalar_inplace>, per_output<1>},
    {"__irshift__.Tensor", shape<binary_inplace>, per_output<1>},
    {"__lshift__.Scalar", shape<with_scalar>, per_output<1>},
    {"__lshift__.Tensor", shape<binary>, per_output<1>},
    {"__rshift__.Scalar", shape<with_scalar>, per_output<1>},
    {"__rshift__.Tensor", shape<binary>, per_output<1>},
    {"_dirichlet_grad", shape<of_three_equals>, unknown_flops},
    {"_standard_gamma_grad", shape<of_equals>, unknown_flops},
    over_input({"abs.out", shape<real_valued>, per_output<1>}),
    {"angle", shape<angle>, per_output<1>},
    over_input({"angle.out", shape<angle>, per_output<1>}),
    {"complex.out", shape<to_complex>, no_flops},
    over_input({"conj_physical.out", shape<promoted>, per_output<1>}),
    {"conj_physical_", shape<inplace>, per_output<1>},
    {"floor_divide", shape<binary>, per_output<2>},
    over_input({"floor_divide.out", shape<binary>, per_output<2>}),
    {"floor_divide_.Tensor", shape<binary_inplace>, per_output<2>},
    {"frexp.Tensor_out", shape<frexp>, per_input<2>},
    {"hardtanh", shape<hardtanh>, per_output<2>},
    {"isnan", shape<boolean_like>, per_output<1>},
    over_input({"logical_and.out", shape<boolean_binary>, per_output<1>}),
    over_input({"logical_not.out", shape<boolean>, per_output<1>}),
    over_input({"logical_or.out", shape<boolean_binary>, per_output<1>}),
    over_input({"logical_xor.out", shape<boolean_binary>, per_output<1>}),
    {"logit", shape<logit>, per_output<3>},
    over_input({"logit.out", shape<logit>, per_output<3>}),
    {"logit_", shape<logit_>, per_output<3>},
    {"masked_fill_.Scalar", shape<masked_fill_>, no_flops},
    {"masked_fill_.Tensor", shape<masked_fill_by_tensor_>, no_flops},
    {"mvlgamma.out", shape<mvlgamma>, unknown_flops},
    over_input({"nan_to_num.out", shape<nan_to_num>, per_output<3>}),
    {"polar.out", shape<to_complex>, per_output<4>},
    {"relu", shape<like>, per_output<1>},
    {"relu_", shape<inplace>, per_output<1>},
    {"remainder.Scalar_Tensor", shape<scalar_with>, per_output<3>},
    {"rsub.Tensor", shape<reversed_sub>, per_output<2>},
    {"where.self", shape<where>, no_flops},
    over_input({"where.self_out", shape<where>, no_flops}),
};

} // namespace

c10::ArrayRef<ShapeRow> pointwise_rows() {
  return kRows;
}

} // namespace accel
