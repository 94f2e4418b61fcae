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

// ---- Ranges between ends of which one or both are tensors: the worker reads those

bool is_end(const at::Tensor& end) {
  return end.dim() == 0;
}
bool is_end(const at::Scalar&) {
  return true;
}
bool is_complex(const at::Tensor& end) {
  return end.is_complex();
}
bool is_complex(const at::Scalar& end) {
  return end.isComplex();
}

template <class Start, class End>
Outputs steps_between(
    const Start& start,
    const End& end,
    int64_t steps,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout) {
  if (!is_end(start) || !is_end(end) || steps < 0 ||
      layout.value_or(at::kStrided) != at::kStrided) {
    return decline();
  }
  const auto inferred = is_complex(start) || is_complex(end)
      ? c10::typeMetaToScalarType(c10::get_default_complex_dtype())
      : c10::get_default_dtype_as_scalartype();
  return outputs(make({steps}, dtype.value_or(inferred)));
}

template <class Start, class End>
Outputs linspace_between(
    Start start,
    End end,
    int64_t steps,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout) {
  return steps_between(start, end, steps, dtype, layout);
}

template <class Start, class End>
Outputs logspace_between(
    Start start,
    End end,
    int64_t steps,
    double,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout) {
  return steps_between(start, end, steps, dtype, layout);
}

using Tensor = const at::Tensor&;

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
    {"linspace.Scalar_Tensor", shape<linspace_between<at::Scalar, Tensor>>, per_output<2>},
    {"linspace.Tensor_Scalar", shape<linspace_between<Tensor, at::Scalar>>, per_output<2>},
    {"linspace.Tensor_Tensor", shape<linspace_between<Tensor, Tensor>>, per_output<2>},
    {"logspace.Scalar_Tensor", shape<logspace_between<at::Scalar, Tensor>>, per_output<3>},
    {"logspace.Tensor_Scalar", shape<logspace_between<Tensor, at::Scalar>>, per_output<3>},
    {"logspace.Tensor_Tensor", shape<logspace_between<Tensor, Tensor>>, per_output<3>},
    {"tril_indices", shape<tril_indices>, no_flops},
    {"triu_indices", shape<triu_indices>, no_flops},
};

} // namespace

c10::ArrayRef<ShapeRow> factory_rows() {
  return kRows;
}

} // namespace accel
