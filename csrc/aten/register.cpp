#include "register.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "fallback.h"

namespace accel {

namespace {

using c10::DispatchKey;

// Composite operators that read elements on the host, or call a kernel that only the CPU has.
constexpr std::array<std::string_view, 4> kHostComposites{
    "aten::_saturate_weight_to_fp16",
    "aten::choose_qparams_optimized",
    "aten::kaiser_window",
    "aten::range"};
// The same, with results that are objects of the host.
constexpr std::string_view kPackedOperators = "aten::fbgemm_";

// An operator with a CPU kernel beside a composite one computes what the CPU computes only through
// the CPU's kernel. The composite _foreach_ operators run as one call on the worker instead of one
// call per tensor.
bool wants_fallback(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name();
  const std::string_view text = name.name;
  if (text.substr(0, 6) != "aten::" || op.hasKernelForDispatchKey(DispatchKey::PrivateUse1)) {
    return false;
  }
  if (std::find(kHostComposites.begin(), kHostComposites.end(), text) != kHostComposites.end()) {
    return true;
  }
  const bool composite = op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) ||
      op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) ||
      op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional);
  return composite &&
      (op.hasKernelForDispatchKey(DispatchKey::CPU) || text.substr(6, 9) == "_foreach_");
}

// Layouts and kinds that have no kernels here: the error names the remedy.
void unsupported(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack*) {
  const char* kind = keys.has(DispatchKey::SparsePrivateUse1) ? "sparse"
      : keys.has(DispatchKey::SparseCsrPrivateUse1)           ? "sparse compressed"
      : keys.has(DispatchKey::QuantizedPrivateUse1)           ? "quantized"
                                                              : "nested";
  TORCH_CHECK_NOT_IMPLEMENTED(
      false,
      "accel: ",
      op.operator_name(),
      " has no kernel for ",
      kind,
      " tensors on accel yet; move them with .cpu(), or use dense ones");
}

void host_only(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false,
      "accel: ",
      op.operator_name(),
      " packs weights for the host's processor; move its operands with .cpu()");
}

} // namespace

void register_fallback() {
  static torch::Library backend(
      torch::Library::IMPL, "_", DispatchKey::PrivateUse1, __FILE__, __LINE__);
  backend.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());

  static std::vector<torch::Library> others;
  for (const auto key :
       {DispatchKey::SparsePrivateUse1,
        DispatchKey::SparseCsrPrivateUse1,
        DispatchKey::QuantizedPrivateUse1,
        DispatchKey::NestedTensorPrivateUse1}) {
    others.emplace_back(torch::Library::IMPL, "_", key, __FILE__, __LINE__);
    others.back().fallback(torch::CppFunction::makeFromBoxedFunction<&unsupported>());
  }

  static torch::Library aten(
      torch::Library::IMPL, "aten", DispatchKey::PrivateUse1, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (op && wants_fallback(*op)) {
      aten.impl(
          c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&fallback>());
    } else if (op && name.name.rfind(kPackedOperators, 0) == 0) {
      aten.impl(
          c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&host_only>());
    }
  }
}

} // namespace accel
