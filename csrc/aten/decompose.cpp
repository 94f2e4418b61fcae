// Operators that are other operators, called on the host: as one launch the CPU's kernel would make
// intermediate results in host memory, or where its output belongs.
#include <ATen/ScalarOps.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/sub.h>
#include <c10/util/strides.h>
#include <torch/library.h>

#include "queued_operator.h"

namespace accel {

namespace {

using at::DimVector;
using at::IntArrayRef;
using at::Tensor;

Tensor rsub(const Tensor& self, const Tensor& other, const at::Scalar& alpha) {
  return at::sub(other, self, alpha);
}

Tensor remainder(const at::Scalar& self, const Tensor& other) {
  return at::remainder(at::native::wrapped_scalar_tensor(self), other);
}

// ---- roll, a dimension at a time

at::MemoryFormat format_of(IntArrayRef sizes, IntArrayRef strides) {
  return c10::is_channels_last_strides_2d(sizes, strides) ? at::MemoryFormat::ChannelsLast
      : c10::is_channels_last_strides_3d(sizes, strides)  ? at::MemoryFormat::ChannelsLast3d
                                                          : at::MemoryFormat::Contiguous;
}

// The kernel concatenates two slices: the result has their memory format if it is the same.
Outputs roll_dimension(const Tensor& self, IntArrayRef shifts, IntArrayRef dims) {
  if (shifts.size() != 1 || dims.size() != 1 || dims[0] < -self.dim() || dims[0] >= self.dim()) {
    return decline();
  }
  if (self.numel() == 0) {
    return outputs(make_like(self));
  }
  const int64_t dim = dims[0] < 0 ? dims[0] + self.dim() : dims[0];
  const int64_t size = self.size(dim);
  const int64_t second = ((size - shifts[0]) % size + size) % size;
  DimVector slice(self.sizes());
  slice[dim] = size - second;
  const auto format = format_of(slice, self.strides());
  slice[dim] = second;
  const bool same = format == format_of(slice, self.strides());
  return outputs(
      make(self.sizes(), self.scalar_type(), same ? format : at::MemoryFormat::Contiguous));
}

Tensor roll_once(const Tensor& self, c10::SymIntArrayRef shifts, IntArrayRef dims) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::roll", "");
  static const QueuedOperator queued(op, {"roll", shape<roll_dimension>, no_flops});
  torch::jit::Stack stack{self, shifts, dims};
  queued.call(&stack);
  return std::move(stack[0]).toTensor();
}

Tensor roll(const Tensor& self, c10::SymIntArrayRef shifts, IntArrayRef dims) {
  if (dims.empty() && shifts.size() == 1) {
    return roll_once(self.contiguous().view(self.numel()), shifts, 0).view(self.sizes());
  }
  if (dims.size() < 2 || shifts.size() != dims.size()) {
    return roll_once(self, shifts, dims);
  }
  Tensor result = self;
  for (size_t i = 0; i < dims.size(); ++i) {
    result = roll_once(result, shifts[i], dims[i]);
  }
  return result;
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("remainder.Scalar_Tensor", remainder);
  m.impl("roll", roll);
  m.impl("rsub.Tensor", rsub);
}

} // namespace accel
