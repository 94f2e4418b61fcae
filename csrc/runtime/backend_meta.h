// Flags that a chip's software hangs on a tensor, in the place that torch keeps for it
// (c10::BackendMeta): "these weights are packed already", say. They are of the tensor, not of its
// memory: detach() and .data take them along, torch.save writes them, results and copies have none.
#pragma once

#include <c10/core/TensorImpl.h>

#include <map>
#include <string>
#include <utility>

#include "../driver/accel.h"

namespace at {
class TensorBase;
}

namespace accel {

// By name. torch saves a bool a name, so there is no room for other values.
using TensorFlags = std::map<std::string, bool>;

class BackendMeta final : public c10::BackendMeta {
 public:
  explicit BackendMeta(TensorFlags flags) : flags(std::move(flags)) {}

  // A detached tensor gets flags of its own: setting them there leaves these alone.
  c10::intrusive_ptr<c10::BackendMeta> clone(
      const c10::intrusive_ptr<c10::BackendMeta>&) const override {
    return c10::make_intrusive<BackendMeta>(flags);
  }

  TensorFlags flags;
};

// The flags of a tensor, or null. They live as long as the tensor, or until others are set.
ACCEL_API const TensorFlags* tensor_flags(const at::TensorBase& tensor);

// Replaces the flags of a tensor; none takes them away.
ACCEL_API void set_tensor_flags(const at::TensorBase& tensor, TensorFlags flags);

} // namespace accel
