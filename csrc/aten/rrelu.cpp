// rrelu_with_noise, queued: in training the slope of a negative element i is
// uniform(i) * (upper - lower) + lower; otherwise it is leaky_relu with the mean slope, as in
// torch.
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/leaky_relu.h>
#include <torch/library.h>

#include <vector>

#include "../runtime/generator.h"
#include "../runtime/stream.h"
#include "launch.h"
#include "random_kernels.h"
#include "run_on_cpu.h"

namespace accel {

namespace {

using at::Tensor;
using OptionalGenerator = std::optional<at::Generator>;

void rrelu(
    const Tensor& out,
    const Tensor& noise,
    const Tensor& self,
    Key key,
    double lower,
    double upper) {
  const auto source = self.contiguous();
  const auto result = at::empty_like(source);
  const auto slopes = at::empty_like(source);
  const auto n = source.numel();
  std::vector<float> uniform(static_cast<size_t>(n));
  random::uniforms(uniform.data(), key, 0, n);
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, self.scalar_type(), "rrelu_with_noise_accel", [&] {
        using Acc = at::opmath_type<scalar_t>;
        const auto* const x = source.const_data_ptr<scalar_t>();
        auto* const y = result.mutable_data_ptr<scalar_t>();
        auto* const slope = slopes.mutable_data_ptr<scalar_t>();
        for (int64_t i = 0; i < n; ++i) {
          const auto drawn =
              static_cast<double>(uniform[static_cast<size_t>(i)]) * (upper - lower) + lower;
          slope[i] = static_cast<scalar_t>(x[i] <= 0 ? static_cast<Acc>(drawn) : Acc(1));
          y[i] = static_cast<scalar_t>(static_cast<Acc>(x[i]) * static_cast<Acc>(slope[i]));
        }
      });
  out.copy_(result);
  noise.copy_(slopes.view_as(noise));
}

Tensor& rrelu_out(
    const Tensor& self,
    Tensor& noise,
    const at::Scalar& lower,
    const at::Scalar& upper,
    bool training,
    OptionalGenerator generator,
    Tensor& out) {
  TORCH_CHECK(
      self.numel() == noise.numel(),
      "noise tensor shape must match self tensor shape. Got self.shape = ",
      self.sizes(),
      " noise.shape = ",
      noise.sizes());
  if (!training) {
    return at::leaky_relu_out(out, self, (lower.toDouble() + upper.toDouble()) / 2);
  }
  auto* const impl = generator_or_default(generator, self.device());
  const bool plain = self.scalar_type() == out.scalar_type() &&
      self.scalar_type() == noise.scalar_type() && at::isFloatingType(self.scalar_type()) &&
      noise.device() == self.device() && out.device() == self.device();
  if (impl->cpu() || !plain) { // the CPU's numbers, or its errors
    static const auto op =
        c10::Dispatcher::singleton().findSchemaOrThrow("aten::rrelu_with_noise", "out");
    torch::jit::Stack stack{self, noise, lower, upper, training, generator, out};
    run_on_cpu(op, c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
    return out;
  }
  out.resize_(self.sizes());
  const CallKey key = reserve_key(impl);
  launch(
      "rrelu_with_noise",
      current_stream(self.device().index()),
      {writes(out), writes(noise), reads(self)},
      [key, low = lower.toDouble(), high = upper.toDouble()](at::TensorList t) {
        rrelu(t[0], t[1], t[2], key.resolve(), low, high);
      });
  return out;
}

Tensor rrelu_with_noise(
    const Tensor& self,
    Tensor& noise,
    const at::Scalar& lower,
    const at::Scalar& upper,
    bool training,
    OptionalGenerator generator) {
  auto out = at::empty_like(self, at::MemoryFormat::Contiguous);
  return rrelu_out(self, noise, lower, upper, training, std::move(generator), out);
}

Tensor& rrelu_with_noise_(
    Tensor& self,
    Tensor& noise,
    const at::Scalar& lower,
    const at::Scalar& upper,
    bool training,
    OptionalGenerator generator) {
  return rrelu_out(self, noise, lower, upper, training, std::move(generator), self);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("rrelu_with_noise", TORCH_FN(rrelu_with_noise));
  m.impl("rrelu_with_noise_", TORCH_FN(rrelu_with_noise_));
  m.impl("rrelu_with_noise.out", TORCH_FN(rrelu_out));
}

} // namespace

} // namespace accel
