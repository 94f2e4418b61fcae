#include "compose.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/SparseTensorImpl.h>

#include "../runtime/device.h"

namespace accel {

namespace {

using at::SparseCsrTensorImpl;
using at::SparseTensorImpl;
using at::native::NestedTensorImpl;

c10::DispatchKeySet keys(c10::DispatchKey functionality, c10::BackendComponent backend) {
  return c10::DispatchKeySet(functionality) | c10::DispatchKeySet(backend);
}

bool is_compressed(const at::Tensor& tensor) {
  return at::sparse_csr::is_sparse_compressed(tensor.layout());
}

template <class Impl>
Impl* impl_of(const at::Tensor& tensor) {
  return static_cast<Impl*>(tensor.unsafeGetTensorImpl());
}

// Metadata that torch reads on the host must lie in ordinary memory, also where a kernel made it
// while allocations were redirected.
at::Tensor host_metadata(const at::Tensor& tensor) {
  return is_arena_address(tensor.storage().data()) ? tensor.clone() : tensor;
}

at::Tensor compose_coo(const at::Tensor& like, c10::BackendComponent backend, MapMember map) {
  auto tensor = at::detail::make_tensor<SparseTensorImpl>(
      keys(c10::DispatchKey::Sparse, backend), like.dtype());
  recompose(tensor, like, map);
  return tensor;
}

at::Tensor
compose_compressed(const at::Tensor& like, c10::BackendComponent backend, MapMember map) {
  auto* const from = impl_of<SparseCsrTensorImpl>(like);
  const auto values = map(from->values());
  auto tensor = at::detail::make_tensor<SparseCsrTensorImpl>(
      keys(c10::DispatchKey::SparseCsr, backend), values.device(), like.layout(), like.dtype());
  recompose(tensor, like, map);
  return tensor;
}

at::Tensor compose_nested(const at::Tensor& like, MapMember map) {
  auto* const from = impl_of<NestedTensorImpl>(like);
  return at::detail::make_tensor<NestedTensorImpl>(
      map(from->get_unsafe_storage_as_tensor()),
      host_metadata(from->get_nested_sizes()),
      host_metadata(from->get_nested_strides()),
      host_metadata(from->get_storage_offsets()));
}

void recompose_coo(const at::Tensor& tensor, const at::Tensor& like, MapMember map) {
  auto* const to = impl_of<SparseTensorImpl>(tensor);
  auto* const from = impl_of<SparseTensorImpl>(like);
  const auto indices = map(from->indices());
  const auto values = map(from->values());
  if (to->sizes() != from->sizes() || to->sparse_dim() != from->sparse_dim() ||
      to->dense_dim() != from->dense_dim()) {
    to->raw_resize_(from->sparse_dim(), from->dense_dim(), from->sizes());
  }
  if (!indices.is_same(to->indices()) || !values.is_same(to->values())) {
    to->set_indices_and_values_unsafe(indices, values);
  }
  if (to->coalesced() != from->coalesced()) {
    to->set_coalesced(from->coalesced());
  }
}

void recompose_compressed(const at::Tensor& tensor, const at::Tensor& like, MapMember map) {
  auto* const to = impl_of<SparseCsrTensorImpl>(tensor);
  auto* const from = impl_of<SparseCsrTensorImpl>(like);
  const auto compressed = map(from->compressed_indices());
  const auto plain = map(from->plain_indices());
  const auto values = map(from->values());
  if (to->layout() != from->layout()) {
    to->set_layout(from->layout());
  }
  if (to->sizes() != from->sizes() || !compressed.is_same(to->compressed_indices()) ||
      !plain.is_same(to->plain_indices()) || !values.is_same(to->values())) {
    to->set_member_tensors(compressed, plain, values, from->sizes());
  }
}

} // namespace

bool is_composed(const at::Tensor& tensor) {
  return tensor.is_sparse() || is_compressed(tensor) || tensor.is_nested();
}

std::vector<at::Tensor> members_of(const at::Tensor& tensor) {
  if (!is_composed(tensor)) {
    return {tensor};
  }
  if (tensor.is_sparse()) {
    auto* const coo = impl_of<SparseTensorImpl>(tensor);
    return {coo->indices(), coo->values()};
  }
  if (is_compressed(tensor)) {
    auto* const compressed = impl_of<SparseCsrTensorImpl>(tensor);
    return {compressed->compressed_indices(), compressed->plain_indices(), compressed->values()};
  }
  return {impl_of<NestedTensorImpl>(tensor)->get_unsafe_storage_as_tensor()};
}

at::Tensor compose(const at::Tensor& like, c10::BackendComponent backend, MapMember map) {
  return like.is_sparse() ? compose_coo(like, backend, map)
      : like.is_nested()  ? compose_nested(like, map)
                          : compose_compressed(like, backend, map);
}

void recompose(const at::Tensor& tensor, const at::Tensor& like, MapMember map) {
  if (like.is_sparse()) {
    recompose_coo(tensor, like, map);
  } else if (!like.is_nested()) { // whose metadata no kernel changes
    recompose_compressed(tensor, like, map);
  }
}

} // namespace accel
