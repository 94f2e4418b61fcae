// fill_ and zero_: queued. A target that overlaps itself is taken, as on the CPU: all its elements
// become equal.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "../runtime/stream.h"
#include "launch.h"
#include "scalar_value.h"

namespace accel {

namespace {

at::Tensor& fill_scalar(at::Tensor& self, const at::Scalar& value) {
  if (self.numel() == 0) {
    return self;
  }
  check_convertible(value, self.scalar_type());
  const ScalarValue scalar(value);
  launch(
      "fill_",
      current_stream(self.device().index()),
      {writes(self)},
      [scalar](at::TensorList tensors) { tensors[0].fill_(scalar.to_scalar()); });
  return self;
}

at::Tensor& fill_tensor(at::Tensor& self, const at::Tensor& value) {
  TORCH_CHECK(
      value.dim() == 0,
      "fill_ only supports 0-dimension value tensor but got tensor with ",
      value.dim(),
      " dimensions.");
  if (self.numel() == 0) {
    return self;
  }
  if (value.device() != self.device() && !value.device().is_cpu()) {
    return fill_tensor(self, value.to(self.device()));
  }
  if (value.device().is_cpu()) {
    check_convertible(value.item(), self.scalar_type());
  }
  launch(
      "fill_",
      current_stream(self.device().index()),
      {writes(self), reads(value)},
      // As on the CPU: a value within self is read before the first write, and cast.
      [](at::TensorList tensors) { tensors[0].fill_(tensors[1]); });
  return self;
}

at::Tensor& zero_(at::Tensor& self) {
  return fill_scalar(self, 0);
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("fill_.Scalar", TORCH_FN(fill_scalar));
  m.impl("fill_.Tensor", TORCH_FN(fill_tensor));
  m.impl("zero_", TORCH_FN(zero_));
}

} // namespace accel
