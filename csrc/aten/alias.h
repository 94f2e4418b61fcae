// CPU tensors over the bytes of device tensors: what kernels on the host's cores compute on.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/util/flat_hash_map.h>

namespace accel {

// A non-owning CPU storage over `bytes` bytes at `host`. A resizable one lets out= kernels
// reallocate.
c10::Storage alias_storage(void* host, size_t bytes, bool resizable);

struct Geometry {
  at::IntArrayRef sizes;
  at::IntArrayRef strides;
  int64_t offset; // elements
  c10::ScalarType dtype;
  bool conj;
  bool neg;
};
Geometry geometry_of(const at::Tensor& tensor);

// A strided tensor of `keys`' backend (CPU or accel) with that geometry on `storage`.
at::Tensor tensor_on(c10::Storage storage, c10::DispatchKey backend, const Geometry& geometry);

// Aliases several tensors of one call: one alias storage per storage, so that torch's overlap
// checks see what they would see on the CPU.
class Aliases {
 public:
  // `tensor` lives on an accel device. Members of sparse and nested tensors get entries of their
  // own.
  at::Tensor alias(const at::Tensor& tensor);

  struct Entry {
    at::Tensor original;
    at::Tensor alias;
    at::Tensor without_padding; // the alias' values, where it lacks the original's padding
  };
  const std::vector<Entry>& entries() const {
    return entries_;
  }
  // The storage that `alias_storage` stands for, or null.
  const c10::Storage* original_storage(const c10::StorageImpl* alias_storage) const;

 private:
  std::vector<Entry> entries_;
  struct StoragePair {
    c10::Storage original;
    c10::Storage alias;
  };
  std::vector<StoragePair> storages_; // few per call: searched linearly
};

} // namespace accel
