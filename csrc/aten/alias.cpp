#include "alias.h"

#include <ATen/ops/_efficientzerotensor.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/ScalarType.h>

#include "../runtime/device.h"
#include "compose.h"
#include "sparse_padding.h"

namespace accel {

c10::Storage alias_storage(void* host, size_t bytes, bool resizable) {
  return c10::Storage(
      c10::make_intrusive<c10::StorageImpl>(
          c10::StorageImpl::use_byte_size_t(),
          static_cast<int64_t>(bytes),
          c10::DataPtr(host, c10::Device(c10::DeviceType::CPU)),
          resizable ? c10::GetCPUAllocator() : nullptr,
          resizable));
}

Geometry geometry_of(const at::Tensor& tensor) {
  return {
      tensor.sizes(),
      tensor.strides(),
      tensor.storage_offset(),
      tensor.scalar_type(),
      tensor.is_conj(),
      tensor.is_neg()};
}

at::Tensor tensor_on(c10::Storage storage, c10::DispatchKey backend, const Geometry& geometry) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(backend), c10::scalarTypeToTypeMeta(geometry.dtype));
  auto* const impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(geometry.sizes, geometry.strides, geometry.offset);
  if (geometry.conj) {
    impl->_set_conj(true);
  }
  if (geometry.neg) {
    impl->_set_neg(true);
  }
  return tensor;
}

namespace {

at::Tensor zero_tensor_like(const at::Tensor& tensor) {
  auto zero =
      at::_efficientzerotensor(tensor.sizes(), tensor.options().device(c10::DeviceType::CPU));
  zero.unsafeGetTensorImpl()->set_sizes_and_strides(
      tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return zero;
}

} // namespace

at::Tensor Aliases::alias(const at::Tensor& tensor) {
  for (const auto& entry : entries_) {
    if (entry.original.is_same(tensor)) {
      return entry.alias;
    }
  }
  if (C10_UNLIKELY(is_composed(tensor))) {
    auto composed =
        compose(tensor, c10::BackendComponent::CPUBit, [this](const at::Tensor& member) {
          return alias(member);
        });
    const bool cut = composed.is_sparse() && cut_padding(composed);
    entries_.push_back({tensor, composed, cut ? composed._values() : at::Tensor()});
    return entries_.back().alias;
  }
  if (C10_UNLIKELY(tensor._is_zerotensor())) { // no memory stands behind it
    entries_.push_back({tensor, zero_tensor_like(tensor), {}});
    return entries_.back().alias;
  }
  const auto& storage = tensor.storage();
  const c10::Storage* over = nullptr;
  for (const auto& pair : storages_) {
    if (pair.original.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl()) {
      over = &pair.alias;
    }
  }
  if (over == nullptr) {
    auto* const host = host_address(storage.unsafeGetStorageImpl()->mutable_data());
    storages_.push_back({storage, alias_storage(host, storage.nbytes(), /*resizable=*/true)});
    over = &storages_.back().alias;
  }
  entries_.push_back({tensor, tensor_on(*over, c10::DispatchKey::CPU, geometry_of(tensor)), {}});
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    entries_.back().alias.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return entries_.back().alias;
}

const c10::Storage* Aliases::original_storage(const c10::StorageImpl* alias_storage) const {
  for (const auto& pair : storages_) {
    if (pair.alias.unsafeGetStorageImpl() == alias_storage) {
      return &pair.original;
    }
  }
  return nullptr;
}

} // namespace accel
