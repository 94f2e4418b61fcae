#include "register.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "fallback.h"
#include "neutral.h"

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

// A kind of tensor on accel, and the same on the CPU.
struct Kind {
  DispatchKey accel;
  DispatchKey cpu;
};
constexpr Kind kDense{DispatchKey::PrivateUse1, DispatchKey::CPU};
constexpr std::array<Kind, 3> kComposed{
    {{DispatchKey::SparsePrivateUse1, DispatchKey::SparseCPU},
     {DispatchKey::SparseCsrPrivateUse1, DispatchKey::SparseCsrCPU},
     {DispatchKey::NestedTensorPrivateUse1, DispatchKey::NestedTensorCPU}}};

bool has_composite(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) ||
      op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) ||
      op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional);
}

// An operator with a CPU kernel beside a composite one computes what the CPU computes only through
// the CPU's kernel.
bool wants_cpu_kernel(const c10::OperatorHandle& op, const Kind& kind) {
  return !op.hasKernelForDispatchKey(kind.accel) && op.hasKernelForDispatchKey(kind.cpu);
}

bool wants_fallback(const c10::OperatorHandle& op) {
  const std::string_view text = op.operator_name().name;
  if (op.hasKernelForDispatchKey(DispatchKey::PrivateUse1)) {
    return false;
  }
  if (std::find(kHostComposites.begin(), kHostComposites.end(), text) != kHostComposites.end()) {
    return true;
  }
  return has_composite(op) && wants_cpu_kernel(op, kDense);
}

// The CPU's kernel of an operator for sparse or nested tensors: as it is, or over aliases. Where
// that kernel is the only one, the fallback of the key will do.
std::optional<torch::CppFunction> composed_kernel(const c10::OperatorHandle& op, const Kind& kind) {
  if (!wants_cpu_kernel(op, kind)) {
    return std::nullopt;
  }
  const auto name = c10::toString(op.operator_name());
  if (is_neutral(std::string_view(name).substr(6), kind.cpu)) {
    return torch::CppFunction::makeFromBoxedFunction<&run_neutral>();
  }
  if (has_composite(op)) {
    return torch::CppFunction::makeFromBoxedFunction<&fallback>();
  }
  return std::nullopt;
}

// accel has no quantized tensors: the error names the remedy.
void quantized(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false,
      "accel: ",
      op.operator_name(),
      " for a quantized dtype: accel has no quantized tensors; quantize with torchao, or keep them "
      "on the CPU");
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
  static std::vector<torch::Library> libraries;
  const auto library = [](const char* ns, DispatchKey key) -> torch::Library& {
    return libraries.emplace_back(torch::Library::IMPL, ns, key, __FILE__, __LINE__);
  };
  const auto boxed = [] { return torch::CppFunction::makeFromBoxedFunction<&fallback>(); };

  library("_", DispatchKey::QuantizedPrivateUse1)
      .fallback(torch::CppFunction::makeFromBoxedFunction<&quantized>());
  library("_", kDense.accel).fallback(boxed());
  for (const auto& kind : kComposed) {
    library("_", kind.accel).fallback(boxed());
  }

  std::vector<c10::OperatorHandle> operators;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (op && name.name.rfind("aten::", 0) == 0) {
      operators.push_back(*op);
    }
  }
  auto& dense = library("aten", kDense.accel);
  for (const auto& op : operators) {
    const auto name = c10::toString(op.operator_name());
    if (wants_fallback(op)) {
      dense.impl(name.c_str(), boxed());
    } else if (name.rfind(kPackedOperators, 0) == 0) {
      dense.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&host_only>());
    }
  }
  for (const auto& kind : kComposed) {
    auto& composed = library("aten", kind.accel);
    for (const auto& op : operators) {
      if (auto kernel = composed_kernel(op, kind)) {
        composed.impl(c10::toString(op.operator_name()).c_str(), std::move(*kernel));
      }
    }
  }
}

} // namespace accel
