// Tensors that are computed from scalars.
#include <ATen/Dispatch.h>
#include <ATen/native/RangeUtils.h>
#include <ATen/native/TensorFactories.h>

#include "../shapes.h"

namespace accel {

namespace {

// ---- Ranges: an out= argument with as many elements as are computed keeps its sizes

// -1 for a dtype that the kernel refuses.
int64_t arange_size(
    at::ScalarType dtype,
    const at::Scalar& start,
    const at::Scalar& end,
    const at::Scalar& step) {
  if (dtype == at::kLong) {
    return at::native::compute_arange_size<int64_t>(start, end, step);
  }
  const bool known = at::isFloatingType(dtype)
      ? !at::isFloat8Type(dtype)
      : at::isIntegralType(dtype, /*includeBool=*/false) && !at::isBarebonesUnsignedType(dtype);
  return known ? at::native::compute_arange_size<double>(start, end, step) : -1;
}

Outputs arange(at::Scalar start, at::Scalar end, at::Scalar step, const at::Tensor& out) {
  if (start.isComplex() || end.isComplex() || step.isComplex()) {
    return decline();
  }
  const int64_t size = arange_size(out.scalar_type(), start, end, step);
  if (size < 0 || (size != out.numel() && out.numel() > 0)) {
    return decline(); // another size is reported in the kernel's own words
  }
  return outputs(size == out.numel() ? out : resized(out, {size}));
}

Outputs steps_into(int64_t steps, const at::Tensor& out) {
  if (steps < 0) {
    return decline();
  }
  return outputs(steps == out.numel() ? out : resized(out, {steps}));
}

Outputs linspace(at::Scalar, at::Scalar, int64_t steps, const at::Tensor& out) {
  return steps_into(steps, out);
}

Outputs logspace(at::Scalar, at::Scalar, int64_t steps, double, const at::Tensor& out) {
  return steps_into(steps, out);
}

// ---- Matrices

Outputs eye_m(int64_t n, int64_t m, const at::Tensor& out) {
  return n < 0 || m < 0 ? decline() : outputs(resized(out, {n, m}));
}

Outputs eye(int64_t n, const at::Tensor& out) {
  return eye_m(n, n, out);
}

Outputs triangle(int64_t size, std::optional<at::ScalarType> dtype, std::optional<bool> pinned) {
  return pinned.value_or(false) ? decline() : outputs(make({2, size}, dtype.value_or(at::kLong)));
}

Outputs tril_indices(
    int64_t row,
    int64_t col,
    int64_t offset,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout,
    std::optional<at::Device>,
    std::optional<bool> pinned) {
  at::native::check_args(row, col, layout);
  return triangle(at::native::get_tril_size(row, col, offset), dtype, pinned);
}

Outputs triu_indices(
    int64_t row,
    int64_t col,
    int64_t offset,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout,
    std::optional<at::Device>,
    std::optional<bool> pinned) {
  at::native::check_args(row, col, layout);
  return triangle(row * col - at::native::get_tril_size(row, col, offset - 1), dtype, pinned);
}

const ShapeRow kRows[] = {
    {"arange.start_out", shape<arange>, per_output<2>},
    {"eye.m_out", shape<eye_m>, no_flops},
    {"eye.out", shape<eye>, no_flops},
    {"linspace.out", shape<linspace>, per_output<2>},
    {"logspace.out", shape<logspace>, per_output<3>},
    {"tril_indices", shape<tril_indices>, no_flops},
    {"triu_indices", shape<triu_indices>, no_flops},
};

} // namespace

c10::ArrayRef<ShapeRow> factory_rows() {
  return kRows;
}

} // namespace accel
