// Every convolution of torch ends here for PrivateUse1. The CPU's own choice of algorithm runs, so
// that results are the CPU's bit for bit.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "run_on_cpu.h"

namespace accel {

namespace {

// convolution_overrideable has the arguments of convolution.
void convolution(const c10::OperatorHandle&, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
  run_on_cpu(op, keys, stack);
}

// convolution_backward has one argument more, bias_sizes after weight.
void convolution_backward(
    const c10::OperatorHandle& self,
    c10::DispatchKeySet keys,
    torch::jit::Stack* stack) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution_backward", "");
  enum { kGradOutput, kInput, kWeight, kStride, kTransposed = 6, kGroups = 8, kOutputMask = 9 };
  const auto begin = stack->end() - static_cast<ptrdiff_t>(self.schema().arguments().size());
  const auto& weight = begin[kWeight].toTensor();
  c10::IValue bias_sizes;
  if (begin[kOutputMask].toBoolList().get(2)) {
    const bool transposed = begin[kTransposed].toBool();
    const int64_t outputs = transposed ? weight.size(1) * begin[kGroups].toInt() : weight.size(0);
    bias_sizes = std::vector<int64_t>{outputs};
  }
  stack->insert(begin + kStride, std::move(bias_sizes));
  run_on_cpu(op, keys, stack);
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", torch::CppFunction::makeFromBoxedFunction<&convolution>());
  m.impl(
      "convolution_backward_overrideable",
      torch::CppFunction::makeFromBoxedFunction<&convolution_backward>());
}

} // namespace accel
