// Views and other operators on metadata only: torch's own device-neutral functions do.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_nested_view_from_buffer_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "../runtime/allocator.h"

namespace accel {

namespace {

// Protects the whole block under the tensor, whatever part of it the tensor views.
void tensor_record_stream(at::Tensor& self, at::Stream stream) {
  record_stream(self.storage().data_ptr(), stream);
}

// Whether `self.data = from` may be: dense tensors of the CPU and of accel take each other's place,
// as those of the CPU and of CUDA do. Module.to then keeps its parameters, and what ties them.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  const auto dense = [](c10::DispatchKeySet keys) {
    constexpr c10::DispatchKeySet kBackends(
        {c10::BackendComponent::CPUBit, c10::BackendComponent::PrivateUse1Bit});
    return keys.has(c10::DispatchKey::Dense) && keys.has_any(kBackends);
  };
  return (dense(self.key_set()) && dense(from.key_set())) ||
      self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

// Compressed tensors have no shallow copy that takes their indices and values along (torch 2.13
// leaves the old ones in place): Module.to makes new parameters then, as it does between other
// layouts.
bool no_shallow_copy(const at::Tensor& self, const at::Tensor& from) {
  return false;
}

} // namespace

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(no_shallow_copy));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  m.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  m.impl("_nested_view_from_buffer", TORCH_FN(at::native::_nested_view_from_buffer));
  m.impl("record_stream", TORCH_FN(tensor_record_stream));
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
}

} // namespace accel
