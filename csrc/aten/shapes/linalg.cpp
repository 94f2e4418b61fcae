// Linear algebra. Operators whose kernel raises for what LAPACK says of the values stay on the
// fallback, as they wait on CUDA: cholesky, cholesky_inverse, linalg_eig, linalg_eigvals. So does
// linalg_lstsq: its sizes depend on the rank.
#include <ATen/ExpandUtils.h>
#include <ATen/native/LinearAlgebraUtils.h>

#include "iterate.h"

namespace accel {

namespace {

using at::DimVector;
using at::IntArrayRef;

// ---- Made of vectors

bool are_vectors(const at::Tensor& a, const at::Tensor& b) {
  return a.dim() == 1 && a.sizes() == b.sizes() && a.dim() == b.dim() &&
      a.scalar_type() == b.scalar_type();
}

// The kernel computes on the operands' plain values and conjugates the result if it must.
Outputs product(const at::Tensor& self, const at::Tensor& other, bool conj) {
  if (!are_vectors(self, other)) {
    return decline();
  }
  auto result = make({}, self.scalar_type());
  result._set_conj(conj && self.is_complex());
  return outputs(std::move(result));
}

Outputs dot(const at::Tensor& self, const at::Tensor& other) {
  return product(self, other, self.is_conj() && other.is_conj());
}

Outputs vdot(const at::Tensor& self, const at::Tensor& other) {
  return product(self, other, !self.is_conj() && other.is_conj());
}

// A factor of a result: no boolean for numbers, no fraction for integers.
bool is_factor(const at::Scalar& factor, at::ScalarType dtype) {
  return (!factor.isBoolean() || dtype == at::kBool) &&
      (at::isFloatingType(dtype) || at::isComplexType(dtype) || factor.isIntegral(true)) &&
      (at::isComplexType(dtype) || !factor.isComplex());
}

Outputs addr(
    const at::Tensor& self,
    const at::Tensor& column,
    const at::Tensor& row,
    at::Scalar beta,
    at::Scalar alpha) {
  if (column.dim() != 1 || row.dim() != 1 || column.is_cpu() || row.is_cpu()) {
    return decline();
  }
  const DimVector sizes{column.size(0), row.size(0)};
  if (!at::is_expandable_to(self.sizes(), sizes)) {
    return decline();
  }
  auto result = elementwise({self.expand(sizes), column.unsqueeze(1), row});
  const auto dtype = (*result)[0].scalar_type();
  return is_factor(beta, dtype) && is_factor(alpha, dtype) ? result : decline();
}

Outputs addr_(
    const at::Tensor& self,
    const at::Tensor& column,
    const at::Tensor& row,
    at::Scalar beta,
    at::Scalar alpha) {
  const auto made = addr(self, column, row, beta, alpha);
  const bool fits =
      made && (*made)[0].sizes() == self.sizes() && (*made)[0].scalar_type() == self.scalar_type();
  return fits ? outputs() : decline();
}

// ---- Sums of products

std::optional<DimVector> summed_product(
    const at::Tensor& self,
    const at::Tensor& batch1,
    const at::Tensor& batch2,
    const at::Scalar& beta,
    const at::Scalar& alpha) {
  const auto dtype = self.scalar_type();
  // The sum of nothing is beta times self, which an integer may not hold.
  const bool fractional = beta.isFloatingPoint() && at::isIntegralType(dtype, true);
  if (fractional && (batch1.numel() == 0 || batch2.numel() == 0)) {
    return std::nullopt;
  }
  if (batch1.dim() != 3 || batch2.dim() != 3 || batch1.size(0) != batch2.size(0) ||
      batch1.size(2) != batch2.size(1) || batch1.scalar_type() != dtype ||
      batch2.scalar_type() != dtype ||
      (!at::isComplexType(dtype) && (beta.isComplex() || alpha.isComplex()))) {
    return std::nullopt;
  }
  return DimVector{batch1.size(1), batch2.size(2)};
}

Outputs addbmm(
    const at::Tensor& self,
    const at::Tensor& batch1,
    const at::Tensor& batch2,
    at::Scalar beta,
    at::Scalar alpha) {
  const auto sizes = summed_product(self, batch1, batch2, beta, alpha);
  if (!sizes || !at::is_expandable_to(self.sizes(), *sizes)) {
    return decline();
  }
  return outputs(make(*sizes, self.scalar_type()));
}

Outputs addbmm_out(
    const at::Tensor& self,
    const at::Tensor& batch1,
    const at::Tensor& batch2,
    at::Scalar beta,
    at::Scalar alpha,
    const at::Tensor& out) {
  const auto sizes = summed_product(self, batch1, batch2, beta, alpha);
  if (!sizes || !at::is_expandable_to(self.sizes(), *sizes) ||
      out.scalar_type() != self.scalar_type()) {
    return decline();
  }
  return outputs(resized(out, *sizes));
}

Outputs addbmm_(
    const at::Tensor& self,
    const at::Tensor& batch1,
    const at::Tensor& batch2,
    at::Scalar beta,
    at::Scalar alpha) {
  const auto sizes = summed_product(self, batch1, batch2, beta, alpha);
  return sizes && self.sizes() == *sizes ? outputs() : decline();
}

int64_t summed_product_flops(Arguments arguments, at::TensorList) {
  return 2 * arguments[1].toTensor().numel() * arguments[2].toTensor().size(2);
}

Outputs int_mm(const at::Tensor& self, const at::Tensor& other) {
  if (self.dim() != 2 || other.dim() != 2 || self.size(1) != other.size(0) ||
      self.scalar_type() != at::kChar || other.scalar_type() != at::kChar) {
    return decline();
  }
  return outputs(make({self.size(0), other.size(1)}, at::kInt));
}

int64_t int_mm_flops(Arguments arguments, at::TensorList) {
  return 2 * arguments[0].toTensor().numel() * arguments[1].toTensor().size(1);
}

// ---- LAPACK: results are batches of matrices in column-major order

at::Tensor column_major(IntArrayRef sizes, at::ScalarType dtype) {
  return make_strided(sizes, at::native::batched_matrix_contiguous_strides(sizes, true), dtype);
}

bool is_matrix(const at::Tensor& a) {
  const auto dtype = c10::toRealValueType(a.scalar_type());
  return a.dim() >= 2 && (dtype == at::kFloat || dtype == at::kDouble);
}

IntArrayRef batch_of(const at::Tensor& a) {
  return a.sizes().slice(0, a.dim() - 2);
}

int64_t batch_count(const at::Tensor& a) {
  return c10::multiply_integers(batch_of(a));
}

// Matrices of one batch and dtype.
bool are_batches(const at::Tensor& a, const at::Tensor& b) {
  return is_matrix(a) && is_matrix(b) && batch_of(a) == batch_of(b) &&
      a.scalar_type() == b.scalar_type();
}

// Householder reflectors: the columns of `a`, with a factor each.
bool are_reflectors(const at::Tensor& a, const at::Tensor& tau) {
  return is_matrix(a) && tau.dim() == a.dim() - 1 && tau.scalar_type() == a.scalar_type() &&
      tau.sizes().slice(0, a.dim() - 2) == batch_of(a) && tau.size(-1) <= a.size(-1) &&
      a.numel() > 0;
}

// out= arguments without elements have the strides of a first step where there is nothing to do.
template <bool out>
Outputs geqrf(const at::Tensor& self) {
  if (!is_matrix(self) || (out && self.numel() == 0)) {
    return decline();
  }
  DimVector factors(batch_of(self));
  factors.push_back(std::min(self.size(-2), self.size(-1)));
  return outputs(column_major(self.sizes(), self.scalar_type()), make(factors, self.scalar_type()));
}

Outputs householder_product(const at::Tensor& self, const at::Tensor& tau) {
  if (!are_reflectors(self, tau) || self.size(-2) < self.size(-1)) {
    return decline();
  }
  return outputs(column_major(self.sizes(), self.scalar_type()));
}

Outputs ormqr(const at::Tensor& self, const at::Tensor& tau, const at::Tensor& other, bool left) {
  if (!are_reflectors(self, tau) || !are_batches(self, other) || other.numel() == 0 ||
      other.size(left ? -2 : -1) != self.size(-2) || other.size(left ? -2 : -1) < tau.size(-1)) {
    return decline();
  }
  return outputs(column_major(other.sizes(), other.scalar_type()));
}

Outputs cholesky_solve(const at::Tensor& self, const at::Tensor& factor) {
  if (!are_batches(self, factor) || factor.size(-1) != factor.size(-2) ||
      self.size(-2) != factor.size(-1)) {
    return decline();
  }
  return outputs(column_major(self.sizes(), self.scalar_type()));
}

Outputs solve_triangular(const at::Tensor& a, const at::Tensor& b, bool, bool left) {
  at::native::checkInputsSolver(a, b, left, "linalg.solve_triangular");
  if (!is_matrix(a) || a.scalar_type() != b.scalar_type()) {
    return decline();
  }
  auto sizes = at::infer_size_dimvector(batch_of(b), batch_of(a));
  const bool expanded = batch_of(a) != sizes;
  sizes.append({b.size(-2), b.size(-1)});
  // A conjugated factor that need not be copied is used as a row-major one.
  const bool row_major = a.is_conj() && !expanded && a.transpose(-2, -1).is_contiguous();
  return outputs(row_major ? make(sizes, a.scalar_type()) : column_major(sizes, a.scalar_type()));
}

Outputs matrix_exp(const at::Tensor& self) {
  const auto dtype = self.scalar_type();
  if (self.dim() < 2 || (!at::isFloatingType(dtype) && !at::isComplexType(dtype)) ||
      self.size(-1) != self.size(-2) || self.numel() == 0) {
    return decline();
  }
  return outputs(make(self.sizes(), self.scalar_type()));
}

// ---- Costs, in the leading terms

int64_t qr_flops(Arguments arguments, at::TensorList) {
  const auto& a = arguments[0].toTensor();
  const int64_t m = std::max(a.size(-2), a.size(-1));
  const int64_t n = std::min(a.size(-2), a.size(-1));
  return batch_count(a) * (2 * m * n * n - 2 * n * n * n / 3);
}

// Each of the reflectors changes the whole matrix in argument `matrix`.
template <size_t matrix>
int64_t reflections_flops(Arguments arguments, at::TensorList) {
  return 4 * arguments[1].toTensor().size(-1) * arguments[matrix].toTensor().numel();
}

// Solves with `triangles` triangular matrices, in argument `factor`.
template <size_t factor, int64_t triangles>
int64_t solve_flops(Arguments arguments, at::TensorList outputs) {
  return triangles * arguments[factor].toTensor().size(-1) * outputs[0].numel();
}

const ShapeRow kRows[] = {
    {"_cholesky_solve_helper", shape<cholesky_solve>, solve_flops<1, 2>},
    {"_int_mm", shape<int_mm>, int_mm_flops},
    {"_int_mm.out", shape<int_mm>, int_mm_flops},
    {"addbmm", shape<addbmm>, summed_product_flops},
    {"addbmm.out", shape<addbmm_out>, summed_product_flops},
    {"addbmm_", shape<addbmm_>, summed_product_flops},
    {"addr", shape<addr>, per_output<4>},
    {"addr_", shape<addr_>, per_output<4>},
    over_input({"addr.out", shape<addr>, per_output<4>}),
    {"dot", shape<dot>, per_input<2>},
    {"geqrf", shape<geqrf<false>>, qr_flops},
    {"geqrf.a", shape<geqrf<true>>, qr_flops},
    {"linalg_householder_product", shape<householder_product>, reflections_flops<0>},
    {"linalg_householder_product.out", shape<householder_product>, reflections_flops<0>},
    {"linalg_matrix_exp", shape<matrix_exp>, unknown_flops},
    {"linalg_solve_triangular", shape<solve_triangular>, solve_flops<0, 1>},
    over_input({"linalg_solve_triangular.out", shape<solve_triangular>, solve_flops<0, 1>}),
    {"ormqr", shape<ormqr>, reflections_flops<2>},
    {"ormqr.out", shape<ormqr>, reflections_flops<2>},
    {"vdot", shape<vdot>, per_input<2>},
};

} // namespace

c10::ArrayRef<ShapeRow> linalg_rows() {
  return kRows;
}

} // namespace accel
