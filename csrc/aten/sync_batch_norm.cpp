// The pieces of batch norm between which SyncBatchNorm talks to other processes. The CPU has no
// kernels for them: each is one launch, from the definition, in float or wider.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/var_mean.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "../runtime/stream.h"
#include "call.h"
#include "launch.h"

namespace accel {

namespace {

using OptionalTensor = std::optional<at::Tensor>;
using at::Tensor;

at::ScalarType accumulated(const Tensor& input) {
  return at::isReducedFloatingType(input.scalar_type()) ? at::kFloat : input.scalar_type();
}

at::DimVector all_but_channels(const Tensor& input) {
  at::DimVector dims;
  for (int64_t i = 0; i < input.dim(); ++i) {
    if (i != 1) {
      dims.push_back(i);
    }
  }
  return dims;
}

// A value for each channel, such that it broadcasts over `input`.
Tensor per_channel(const Tensor& values, const Tensor& input) {
  at::DimVector sizes(input.dim(), 1);
  sizes[1] = -1;
  return values.to(accumulated(input)).reshape(sizes);
}

void check_operands(const char* name, const Tensor& input, std::initializer_list<Tensor> others) {
  TORCH_CHECK(
      input.dim() >= 2 && at::isFloatingType(input.scalar_type()),
      "accel: ",
      name,
      " expects a floating input of [batch, channels, ...], but got ",
      input.toString(),
      input.sizes());
  for (const auto& other : others) {
    TORCH_CHECK(
        !other.defined() || other.device() == input.device(),
        "accel: ",
        name,
        " expects all tensors to be on ",
        input.device(),
        ", but got one on ",
        other.device());
    TORCH_CHECK(
        !other.defined() || other.sizes() == input.sizes() || other.numel() == input.size(1),
        "accel: ",
        name,
        " expects the input's sizes or ",
        input.size(1),
        " channels, but got ",
        other.sizes());
  }
}

std::tuple<Tensor, Tensor> stats(const Tensor& input, double eps) {
  check_operands("batch_norm_stats", input, {});
  auto mean = make({input.size(1)}, accumulated(input));
  auto invstd = make({input.size(1)}, accumulated(input));
  launch(
      "batch_norm_stats",
      current_stream(input.device().index()),
      {writes(mean), writes(invstd), reads(input)},
      [eps](at::TensorList t) {
        const auto x = t[2].to(t[0].scalar_type());
        const auto [var, mean] = at::var_mean(x, all_but_channels(x), at::Scalar(0));
        t[0].copy_(mean);
        t[1].copy_((var + eps).rsqrt());
      },
      {4 * input.numel(), mean.scalar_type()});
  return {mean, invstd};
}

Tensor elemt(
    const Tensor& input,
    const OptionalTensor& weight,
    const OptionalTensor& bias,
    const Tensor& mean,
    const Tensor& invstd,
    double) {
  const auto w = weight.value_or(Tensor());
  const auto b = bias.value_or(Tensor());
  check_operands("batch_norm_elemt", input, {w, b, mean, invstd});
  auto out = make_like(input);
  launch(
      "batch_norm_elemt",
      current_stream(input.device().index()),
      {writes(out), reads(input), reads(w), reads(b), reads(mean), reads(invstd)},
      [](at::TensorList t) {
        const auto& input = t[1];
        auto y = (input - per_channel(t[4], input)) * per_channel(t[5], input);
        if (t[2].defined()) {
          y = y * per_channel(t[2], input);
        }
        if (t[3].defined()) {
          y = y + per_channel(t[3], input);
        }
        t[0].copy_(y);
      },
      {4 * input.numel(), accumulated(input)});
  return out;
}

// `counts` elements a channel in each process, or `count` in all of them.
std::tuple<Tensor, Tensor> gather(
    const char* name,
    const Tensor& input,
    const Tensor& mean,
    const Tensor& invstd,
    const OptionalTensor& running_mean,
    const OptionalTensor& running_var,
    double momentum,
    double eps,
    const Tensor& counts,
    double count) {
  const auto rm = running_mean.value_or(Tensor());
  const auto rv = running_var.value_or(Tensor());
  check_operands(name, input, {rm, rv});
  TORCH_CHECK(
      mean.dim() == 2 && mean.sizes() == invstd.sizes() && mean.size(1) == input.size(1) &&
          (!counts.defined() || counts.numel() == mean.size(0)),
      "accel: ",
      name,
      " expects statistics of [processes, ",
      input.size(1),
      "] and a count for each process, but got ",
      mean.sizes(),
      " and ",
      invstd.sizes());
  auto all_mean = make({input.size(1)}, accumulated(input));
  auto all_invstd = make({input.size(1)}, accumulated(input));
  launch(
      name,
      current_stream(input.device().index()),
      {writes(all_mean),
       writes(all_invstd),
       updates(rm),
       updates(rv),
       reads(mean),
       reads(invstd),
       reads(counts)},
      [momentum, eps, count](at::TensorList t) {
        const auto dtype = t[0].scalar_type();
        const auto means = t[4].to(dtype);
        const auto vars = t[5].to(dtype).pow(-2) - eps;
        const auto weights = t[6].defined() ? t[6].to(dtype).reshape({-1, 1})
                                            : at::full({means.size(0), 1}, count, means.options());
        const auto total = weights.sum();
        const auto mean = (weights * means).sum(0) / total;
        const auto squares = (weights * (vars + (means - mean).square())).sum(0);
        t[0].copy_(mean);
        t[1].copy_((squares / total + eps).rsqrt());
        if (t[2].defined()) {
          t[2].copy_(t[2] * (1 - momentum) + mean * momentum);
        }
        if (t[3].defined()) {
          t[3].copy_(t[3] * (1 - momentum) + squares / (total - 1) * momentum);
        }
      },
      {10 * mean.numel(), all_mean.scalar_type()});
  return {all_mean, all_invstd};
}

std::tuple<Tensor, Tensor> gather_stats_with_counts(
    const Tensor& input,
    const Tensor& mean,
    const Tensor& invstd,
    const OptionalTensor& running_mean,
    const OptionalTensor& running_var,
    double momentum,
    double eps,
    const Tensor& counts) {
  constexpr const char* kName = "batch_norm_gather_stats_with_counts";
  return gather(
      kName, input, mean, invstd, running_mean, running_var, momentum, eps, counts, /*count=*/0);
}

std::tuple<Tensor, Tensor> gather_stats(
    const Tensor& input,
    const Tensor& mean,
    const Tensor& invstd,
    const OptionalTensor& running_mean,
    const OptionalTensor& running_var,
    double momentum,
    double eps,
    int64_t count) {
  constexpr const char* kName = "batch_norm_gather_stats";
  const auto each = static_cast<double>(count);
  return gather(
      kName, input, mean, invstd, running_mean, running_var, momentum, eps, Tensor(), each);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> backward_reduce(
    const Tensor& grad,
    const Tensor& input,
    const Tensor& mean,
    const Tensor& invstd,
    const OptionalTensor& weight,
    bool input_g,
    bool weight_g,
    bool bias_g) {
  const auto w = weight.value_or(Tensor());
  check_operands("batch_norm_backward_reduce", input, {grad, mean, invstd, w});
  const auto made = [&](bool wanted, at::ScalarType dtype) {
    return wanted ? make({input.size(1)}, dtype) : Tensor();
  };
  const auto acc = accumulated(input);
  const auto parameter = w.defined() ? w.scalar_type() : acc;
  auto sum_dy = made(input_g, acc);
  auto sum_dy_xmu = made(input_g, acc);
  auto grad_weight = made(weight_g, parameter);
  auto grad_bias = made(bias_g, parameter);
  launch(
      "batch_norm_backward_reduce",
      current_stream(input.device().index()),
      {writes(sum_dy),
       writes(sum_dy_xmu),
       writes(grad_weight),
       writes(grad_bias),
       reads(grad),
       reads(input),
       reads(mean),
       reads(invstd)},
      [](at::TensorList t) {
        const auto& input = t[5];
        const auto dims = all_but_channels(input);
        const auto dy = t[4].to(accumulated(input));
        const auto sum = dy.sum(dims);
        const auto product = (dy * (input - per_channel(t[6], input))).sum(dims);
        const auto place = [&](size_t index, const Tensor& value) {
          if (t[index].defined()) {
            t[index].copy_(value);
          }
        };
        place(0, sum);
        place(1, product);
        place(2, product * t[7]);
        place(3, sum);
      },
      {4 * input.numel(), acc});
  return {sum_dy, sum_dy_xmu, grad_weight, grad_bias};
}

Tensor backward_elemt(
    const Tensor& grad,
    const Tensor& input,
    const Tensor& mean,
    const Tensor& invstd,
    const OptionalTensor& weight,
    const Tensor& sum_dy,
    const Tensor& sum_dy_xmu,
    const Tensor& count) {
  const auto w = weight.value_or(Tensor());
  check_operands("batch_norm_backward_elemt", input, {grad, mean, invstd, w, sum_dy, sum_dy_xmu});
  auto grad_input = make_like(input);
  launch(
      "batch_norm_backward_elemt",
      current_stream(input.device().index()),
      {writes(grad_input),
       reads(grad),
       reads(input),
       reads(mean),
       reads(invstd),
       reads(w),
       reads(sum_dy),
       reads(sum_dy_xmu),
       reads(count)},
      [](at::TensorList t) {
        const auto& input = t[2];
        const auto total = t[8].sum().to(accumulated(input));
        const auto invstd = per_channel(t[4], input);
        const auto slope = invstd.square() * per_channel(t[7], input) / total;
        auto dx =
            t[1] - per_channel(t[6], input) / total - (input - per_channel(t[3], input)) * slope;
        dx = dx * invstd;
        t[0].copy_(t[5].defined() ? dx * per_channel(t[5], input) : dx);
      },
      {9 * input.numel(), accumulated(input)});
  return grad_input;
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("batch_norm_stats", TORCH_FN(stats));
  m.impl("batch_norm_elemt", TORCH_FN(elemt));
  m.impl("batch_norm_gather_stats", TORCH_FN(gather_stats));
  m.impl("batch_norm_gather_stats_with_counts", TORCH_FN(gather_stats_with_counts));
  m.impl("batch_norm_backward_reduce", TORCH_FN(backward_reduce));
  m.impl("batch_norm_backward_elemt", TORCH_FN(backward_elemt));
}

} // namespace accel
