#include "neutral.h"

#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <array>

#include "arguments.h"
#include "run_on_cpu.h"

namespace accel {

namespace {

constexpr auto kAnyLayout = std::to_array<std::string_view>({
    "_nnz",
    "_pin_memory",
    "clone",
    "copy_",
    "dense_dim",
    "empty.memory_format",
    "empty_like",
    "is_pinned",
    "resize_as_sparse_",
    "sparse_dim",
    "values",
    "zero_",
});
constexpr auto kCoo = std::to_array<std::string_view>({
    "_coalesced_",
    "_dimI",
    "_dimV",
    "_indices",
    "_sparse_coo_tensor_with_dims",
    "_sparse_coo_tensor_with_dims_and_tensors",
    "_to_dense",
    "_values",
    "add.Tensor",
    "add_.Tensor",
    "any",
    "cat",
    "copy_sparse_to_sparse_",
    "indices",
    "is_coalesced",
    "sparse_resize_",
    "sparse_resize_and_clear_",
    "sub.Tensor",
    "sub.out",
    "sub_.Tensor",
    "sum",
    "unsqueeze",
    "view_as_complex",
    "view_as_real",
    "zeros.out",
});
constexpr auto kCompressed = std::to_array<std::string_view>({
    "ccol_indices",
    "col_indices",
    "crow_indices",
    "fill_.Scalar",
    "normal_",
    "resize_",
    "row_indices",
    "sum",
});
constexpr auto kNested = std::to_array<std::string_view>({
    "_nested_from_padded_and_nested_example",
    "_nested_select_backward",
    "_nested_tensor_size",
    "_nested_tensor_storage_offsets",
    "_nested_tensor_strides",
    "_pin_memory",
    "_safe_softmax",
    "_softmax",
    "_softmax_backward_data",
    "_to_copy",
    "add.Tensor",
    "add_.Tensor",
    "alias",
    "bmm",
    "cat",
    "chunk",
    "clone",
    "copy_",
    "cos",
    "detach",
    "div.Scalar",
    "div.Tensor",
    "embedding",
    "empty_like",
    "eq.Scalar",
    "eq.Tensor",
    "fill_.Scalar",
    "fill_.Tensor",
    "ge.Scalar",
    "gelu",
    "gelu_",
    "gelu_backward",
    "gt.Scalar",
    "is_pinned",
    "is_same_size",
    "linear",
    "linear_backward",
    "logical_not",
    "logical_not_",
    "masked_fill.Scalar",
    "matmul",
    "matmul.out",
    "matmul_backward",
    "mul.Scalar",
    "mul.Tensor",
    "mul_.Scalar",
    "mul_.Tensor",
    "narrow",
    "native_dropout",
    "native_dropout_backward",
    "normal_",
    "ones_like",
    "select.int",
    "silu",
    "silu_",
    "silu_backward",
    "split_with_sizes",
    "squeeze",
    "squeeze.dim",
    "squeeze.dims",
    "sub.Tensor",
    "threshold_backward",
    "to_padded_tensor",
    "transpose.int",
    "unbind.int",
    "unsqueeze",
    "value_selecting_reduction_backward",
    "values",
    "view",
    "where.self",
    "where.self_out",
    "zero_",
});
// Element-wise functions that keep zeros, in all their forms: f(x), f_(x), f(x, out=).
constexpr auto kUnary = std::to_array<std::string_view>({
    "abs",  "angle",      "asin",          "asinh",          "atan",  "atanh",
    "ceil", "deg2rad",    "erf",           "erfinv",         "expm1", "floor",
    "frac", "isinf",      "isnan",         "isneginf",       "log1p", "isposinf",
    "neg",  "nan_to_num", "rad2deg",       "relu",           "round", "sgn",
    "sign", "signbit",    "sin",           "sinh",           "sqrt",  "tan",
    "tanh", "trunc",      "conj_physical", "_conj_physical",
});

template <size_t N>
bool contains(const std::array<std::string_view, N>& names, std::string_view op) {
  return std::find(names.begin(), names.end(), op) != names.end();
}

bool is_unary(std::string_view op) {
  if (op.ends_with(".out")) {
    op.remove_suffix(4);
  } else if (op.ends_with('_')) {
    op.remove_suffix(1);
  }
  return contains(kUnary, op);
}

} // namespace

bool is_neutral(std::string_view op, c10::DispatchKey cpu) {
  switch (cpu) {
    case c10::DispatchKey::SparseCPU:
      return contains(kAnyLayout, op) || contains(kCoo, op) || is_unary(op);
    case c10::DispatchKey::SparseCsrCPU:
      return contains(kAnyLayout, op) || contains(kCompressed, op) || is_unary(op);
    default:
      return contains(kNested, op) || is_unary(op);
  }
}

void run_neutral(
    const c10::OperatorHandle& op,
    c10::DispatchKeySet keys,
    torch::jit::Stack* stack) {
  const c10::DeviceGuard guard(
      device_of_call(torch::jit::last(*stack, op.schema().arguments().size())));
  op.redispatchBoxed(cpu_keys(keys), stack);
}

} // namespace accel
