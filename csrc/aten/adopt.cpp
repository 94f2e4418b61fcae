#include "adopt.h"

#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>

#include "../driver/accel.h"
#include "../runtime/allocator.h"
#include "compose.h"
#include "fallback.h"

namespace accel {

namespace {

std::atomic<int64_t> g_leaked_workspace{0};

bool same_geometry(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides() &&
      a.storage_offset() == b.storage_offset();
}

// accel has tensors of every layout but those of libraries, and none of quantized dtypes.
void check_kind(const at::Tensor& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !tensor.is_quantized(),
      "accel: this operator gives a tensor of ",
      tensor.scalar_type(),
      ", and accel has no quantized tensors; quantize with torchao, or use .cpu() before it");
  TORCH_CHECK_NOT_IMPLEMENTED(
      tensor.layout() == c10::kStrided || is_composed(tensor),
      "accel: this operator gives a tensor of layout ",
      tensor.layout(),
      ", which accel does not have; use .cpu() before it");
}

} // namespace

c10::DataPtr Adoption::take_memory(c10::StorageImpl& cpu) {
  auto* const host = cpu.mutable_data();
  TORCH_INTERNAL_ASSERT(host == nullptr || is_arena_address(host));
  auto owned = cpu.set_data_ptr(c10::DataPtr(host, c10::Device(c10::DeviceType::CPU)));
  owned.release_context(); // the device's DataPtr frees it from now on
  workspace.erase(std::remove(workspace.begin(), workspace.end(), host), workspace.end());
  return make_data_ptr(device_address(host), device_);
}

void Adoption::sync_inputs() {
  for (const auto& [original, alias, cut] : aliases.entries()) {
    if (original._is_zerotensor() || is_composed(original)) {
      continue; // immutable; or below, once the members are right
    }
    auto* const cpu = alias.storage().unsafeGetStorageImpl();
    auto* const storage = original.storage().unsafeGetStorageImpl();
    auto* const host = cpu->mutable_data();
    if (aliases.original_storage(cpu) != nullptr && host != host_address(storage->data())) {
      // The kernel reallocated it. Once per storage: afterwards both sides agree.
      storage->set_data_ptr_noswap(take_memory(*cpu));
      storage->set_nbytes(cpu->nbytes());
    } else if (cpu->nbytes() != storage->nbytes()) {
      storage->set_nbytes(cpu->nbytes());
    }
    if (!same_geometry(original, alias)) {
      original.unsafeGetTensorImpl()->set_sizes_and_strides(
          alias.sizes(), alias.strides(), alias.storage_offset());
    }
  }
  for (const auto& [original, alias, cut] : aliases.entries()) {
    const bool unchanged = cut.defined() && cut.is_same(alias._values());
    if (is_composed(original) && !unchanged) {
      recompose(original, alias, [this](const at::Tensor& member) { return adopt_tensor(member); });
    }
  }
}

c10::Storage Adoption::adopt_storage(const c10::Storage& cpu) {
  for (const auto& known : adopted_) {
    if (known.cpu.unsafeGetStorageImpl() == cpu.unsafeGetStorageImpl()) {
      return known.device;
    }
  }
  auto* const impl = cpu.unsafeGetStorageImpl();
  const auto bytes = impl->nbytes();
  c10::Storage device(
      c10::make_intrusive<c10::StorageImpl>(
          c10::StorageImpl::use_byte_size_t(),
          static_cast<int64_t>(bytes),
          take_memory(*impl),
          device_allocator(),
          /*resizable=*/true));
  adopted_.push_back({cpu, device});
  return device;
}

at::Tensor Adoption::adopt_tensor(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return tensor;
  }
  for (const auto& [original, alias, cut] : aliases.entries()) {
    if (alias.is_same(tensor)) {
      return original;
    }
  }
  if (!tensor.device().is_cpu()) {
    return tensor;
  }
  check_kind(tensor);
  if (is_composed(tensor)) {
    const c10::DeviceGuard guard(device_);
    return compose(tensor, c10::BackendComponent::PrivateUse1Bit, [this](const at::Tensor& member) {
      return adopt_tensor(member);
    });
  }
  const auto& storage = tensor.storage();
  if (const auto* original = aliases.original_storage(storage.unsafeGetStorageImpl())) {
    return tensor_on(*original, c10::DispatchKey::PrivateUse1, geometry_of(tensor));
  }
  if (storage.nbytes() == 0 || is_arena_address(storage.data())) {
    return tensor_on(adopt_storage(storage), c10::DispatchKey::PrivateUse1, geometry_of(tensor));
  }
  // Ordinary memory: a constant that the kernel keeps, or one made by another thread.
  return tensor.to(device_);
}

c10::IValue Adoption::adopt(c10::IValue result) {
  if (result.isTensor()) {
    return adopt_tensor(result.toTensor());
  }
  if (result.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : result.toTensorVector()) {
      list.push_back(adopt_tensor(tensor));
    }
    return list;
  }
  return result;
}

void Adoption::finish() {
  adopted_.clear();
  aliases = Aliases();
  for (void* const host : workspace) {
    accelPointerAttributes attributes{};
    attributes.size = sizeof(attributes);
    if (accelPointerGetAttributes(device_address(host), &attributes) == accelSuccess &&
        attributes.block_live) {
      g_leaked_workspace.fetch_add(static_cast<int64_t>(attributes.block_bytes));
    }
  }
}

int64_t leaked_workspace_bytes() {
  return g_leaked_workspace.load();
}

} // namespace accel
