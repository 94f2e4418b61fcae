#include "register.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <string_view>

#include "fallback.h"

namespace accel {

namespace {

using c10::DispatchKey;

// An operator with a CPU kernel beside a composite one computes what the CPU computes only through
// the CPU's kernel. The composite _foreach_ operators run as one call on the worker instead of one
// call per tensor.
bool wants_fallback(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name();
  const std::string_view text = name.name;
  if (text.substr(0, 6) != "aten::" || op.hasKernelForDispatchKey(DispatchKey::PrivateUse1)) {
    return false;
  }
  const bool composite = op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) ||
      op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional);
  return composite &&
      (op.hasKernelForDispatchKey(DispatchKey::CPU) || text.substr(6, 9) == "_foreach_");
}

} // namespace

void register_fallback() {
  static torch::Library backend(
      torch::Library::IMPL, "_", DispatchKey::PrivateUse1, __FILE__, __LINE__);
  backend.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());

  static torch::Library aten(
      torch::Library::IMPL, "aten", DispatchKey::PrivateUse1, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (op && wants_fallback(*op)) {
      aten.impl(
          c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&fallback>());
    }
  }
}

} // namespace accel
