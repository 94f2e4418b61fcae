// The table of shape functions: unstructured operators of torch that are queued, one row each.
//
// A row names the operator, tells the shapes of its outputs on the host, and what it costs. One
// boxed kernel (QueuedOperator) serves all rows: it asks the shape function, queues a record, and
// the worker runs the operator's CPU kernel on aliases of the arguments. Functional, in-place and
// out= forms are rows of their own that may share a shape function: in-place forms answer
// `outputs()`, out= forms have their out arguments resized to what it makes.
#pragma once

#include "call.h"
#include "launch.h"

namespace accel {

// Floating point operations of a call, or -1. Its outputs are what it writes: fresh ones, then
// arguments.
using FlopsFunction = int64_t (*)(Arguments, at::TensorList outputs);

struct ShapeRow {
  const char* op; // name and overload, without "aten::"
  ShapeFunction shape;
  FlopsFunction flops;
  // Arguments that the kernel writes although the schema does not say so, a bit each.
  uint32_t writes = 0;
  // The bool argument without which it does not, or -1.
  int writes_if = -1;
  // The kernel takes an out= argument that is one of its inputs, as those with a TensorIterator do.
  bool over_input = false;
};
constexpr ShapeRow over_input(ShapeRow row) {
  row.over_input = true;
  return row;
}

// ---- Cost functions

// Copies or moves elements.
inline int64_t no_flops(Arguments, at::TensorList) {
  return 0;
}
// Unknown: depends on values, or is no arithmetic that a chip counts.
inline int64_t unknown_flops(Arguments, at::TensorList) {
  return -1;
}
// `each` operations per element of all outputs.
template <int each>
int64_t per_output(Arguments, at::TensorList outputs) {
  int64_t elements = 0;
  for (const auto& output : outputs) {
    elements += output.defined() ? output.numel() : 0;
  }
  return each * elements;
}
// `each` operations per element of argument `index`.
template <int each, size_t index = 0>
int64_t per_input(Arguments arguments, at::TensorList) {
  const auto& value = arguments[index];
  return value.isTensor() && value.toTensor().defined() ? each * value.toTensor().numel() : -1;
}

// The families, a file each in shapes/.
c10::ArrayRef<ShapeRow> activation_rows();
c10::ArrayRef<ShapeRow> attention_rows();
c10::ArrayRef<ShapeRow> convolution_rows();
c10::ArrayRef<ShapeRow> embedding_rows();
c10::ArrayRef<ShapeRow> factory_rows();
c10::ArrayRef<ShapeRow> fft_rows();
c10::ArrayRef<ShapeRow> foreach_rows();
c10::ArrayRef<ShapeRow> indexing_rows();
c10::ArrayRef<ShapeRow> linalg_rows();
c10::ArrayRef<ShapeRow> loss_rows();
c10::ArrayRef<ShapeRow> movement_rows();
c10::ArrayRef<ShapeRow> normalization_rows();
c10::ArrayRef<ShapeRow> optimizer_rows();
c10::ArrayRef<ShapeRow> pointwise_rows();
c10::ArrayRef<ShapeRow> pooling_rows();
c10::ArrayRef<ShapeRow> reduction_rows();
c10::ArrayRef<ShapeRow> sorting_rows();

// All rows.
std::vector<ShapeRow> shape_rows();

} // namespace accel
