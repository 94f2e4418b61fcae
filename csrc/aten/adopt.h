// Turns what a CPU kernel made over aliases back into device tensors, without copying.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

#include "alias.h"

namespace accel {

class Adoption {
 public:
  explicit Adoption(c10::Device device) : device_(device) {}

  Aliases aliases;
  // Host addresses of the memory that the kernel allocated and did not free; shrinks as storages
  // adopt it.
  std::vector<void*> workspace;

  // Carries what the kernel did to the aliases' metadata (out= resized, storage reallocated) over
  // to the originals.
  void sync_inputs();
  // The device value of a result: an input itself, a view of an input, or a new tensor over the
  // memory that the kernel allocated.
  c10::IValue adopt(c10::IValue result);
  // Counts memory that outlives the call without being part of a result.
  void finish();

 private:
  at::Tensor adopt_tensor(const at::Tensor& tensor);
  c10::Storage adopt_storage(const c10::Storage& cpu);
  // The memory of a CPU storage as device memory; the storage keeps aliasing it.
  c10::DataPtr take_memory(c10::StorageImpl& cpu);

  c10::Device device_;
  struct Adopted {
    c10::Storage cpu;
    c10::Storage device;
  };
  std::vector<Adopted> adopted_; // several results may share one storage
};

} // namespace accel
