#include "backend_meta.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/serialization/pickler_helper.h>

#include <unordered_map>

namespace accel {

const TensorFlags* tensor_flags(const at::TensorBase& tensor) {
  // Another library may keep metadata of its own class here: then there are none of ours.
  const auto* meta =
      dynamic_cast<const BackendMeta*>(tensor.unsafeGetTensorImpl()->get_backend_meta());
  return meta == nullptr ? nullptr : &meta->flags;
}

void set_tensor_flags(const at::TensorBase& tensor, TensorFlags flags) {
  auto* impl = tensor.unsafeGetTensorImpl();
  if (!flags.empty()) {
    impl->set_backend_meta(c10::make_intrusive<BackendMeta>(std::move(flags)));
  } else if (impl->get_backend_meta() != nullptr) {
    impl->set_backend_meta(nullptr);
  }
}

namespace {

// What torch.save asks for, and what torch.load gives back.
const bool g_registered = [] {
  torch::jit::TensorBackendMetaRegistry(
      c10::DeviceType::PrivateUse1,
      [](const at::Tensor& tensor, std::unordered_map<std::string, bool>& saved) {
        if (const auto* flags = tensor_flags(tensor)) {
          saved.insert(flags->begin(), flags->end());
        }
      },
      [](const at::Tensor& tensor, std::unordered_map<std::string, bool>& saved) {
        set_tensor_flags(tensor, {saved.begin(), saved.end()});
      });
  return true;
}();

} // namespace

} // namespace accel
