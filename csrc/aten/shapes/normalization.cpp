// Normalisations and their gradients.
#include <ATen/native/layer_norm.h>

#include <array>

#include "../shapes.h"

namespace accel {

namespace {

using Mask = std::array<bool, 3>;

// The dtype that statistics of a normalisation have: the input's, or float where a reduced input
// meets float parameters. None where the kernel refuses the mixture.
std::optional<at::ScalarType> statistics_dtype(
    const at::Tensor& input,
    std::initializer_list<at::Tensor> parameters) {
  auto dtype = input.scalar_type();
  bool first = true;
  for (const auto& parameter : parameters) {
    if (!parameter.defined()) {
      continue;
    }
    if (first && parameter.scalar_type() != dtype) {
      if (!at::isReducedFloatingType(dtype)) {
        return std::nullopt;
      }
      dtype = at::kFloat;
    }
    first = false;
    if (parameter.scalar_type() != dtype) {
      return std::nullopt;
    }
  }
  return dtype;
}

at::Tensor make_if(bool wanted, at::IntArrayRef sizes, at::ScalarType dtype) {
  return wanted ? make(sizes, dtype) : at::Tensor();
}

// ---- Layer norm

Outputs layer_norm(
    const at::Tensor& input,
    at::IntArrayRef normalized,
    const at::Tensor& weight,
    const at::Tensor& bias) {
  at::native::_check_layer_norm_inputs(input, normalized, weight, bias);
  const auto dtype = statistics_dtype(input, {weight, bias});
  if (!dtype) {
    return decline();
  }
  at::DimVector sizes(input.sizes());
  std::fill(sizes.end() - normalized.size(), sizes.end(), 1);
  return outputs(
      make(input.sizes(), input.scalar_type()), make(sizes, *dtype), make(sizes, *dtype));
}

Outputs layer_norm_backward(
    const at::Tensor& grad,
    const at::Tensor& input,
    at::IntArrayRef normalized,
    const at::Tensor& mean,
    const at::Tensor& rstd,
    const at::Tensor& weight,
    const at::Tensor& bias,
    Mask mask) {
  const auto rows = at::native::_check_layer_norm_inputs(input, normalized, weight, bias).first;
  const auto dtype = statistics_dtype(input, {weight, mean, rstd});
  if (!dtype || grad.sizes() != input.sizes() || grad.scalar_type() != input.scalar_type() ||
      mean.numel() != rows || rstd.numel() != rows || (mask[1] && !weight.defined()) ||
      (mask[2] && !bias.defined())) {
    return decline();
  }
  const auto parameter = weight.defined() ? weight.scalar_type() : *dtype;
  return outputs(
      make_if(mask[0], input.sizes(), input.scalar_type()),
      make_if(mask[1], normalized, parameter),
      make_if(mask[2], normalized, mask[2] ? bias.scalar_type() : parameter));
}

// ---- Group norm

bool is_group_norm(
    const at::Tensor& input,
    const at::Tensor& weight,
    const at::Tensor& bias,
    int64_t N,
    int64_t C,
    int64_t HxW,
    int64_t groups) {
  const auto fits = [C](const at::Tensor& parameter) {
    return !parameter.defined() || (parameter.dim() == 1 && parameter.numel() == C);
  };
  return groups > 0 && C % groups == 0 && input.is_contiguous(input.suggest_memory_format()) &&
      input.numel() == N * C * HxW && fits(weight) && fits(bias);
}

Outputs group_norm(
    const at::Tensor& input,
    const at::Tensor& weight,
    const at::Tensor& bias,
    int64_t N,
    int64_t C,
    int64_t HxW,
    int64_t groups) {
  const auto dtype = statistics_dtype(input, {weight, bias});
  if (!dtype || !is_group_norm(input, weight, bias, N, C, HxW, groups)) {
    return decline();
  }
  return outputs(
      make(input.sizes(), input.scalar_type(), input.suggest_memory_format()),
      make({N, groups}, *dtype),
      make({N, groups}, *dtype));
}

Outputs group_norm_backward(
    const at::Tensor& grad,
    const at::Tensor& input,
    const at::Tensor& mean,
    const at::Tensor& rstd,
    const at::Tensor& weight,
    int64_t N,
    int64_t C,
    int64_t HxW,
    int64_t groups,
    Mask mask) {
  const auto dtype = statistics_dtype(input, {mean, rstd});
  if (!dtype || !is_group_norm(input, weight, {}, N, C, HxW, groups) ||
      grad.sizes() != input.sizes() || grad.scalar_type() != input.scalar_type() ||
      mean.numel() != N * groups || rstd.numel() != N * groups) {
    return decline();
  }
  const auto parameter = weight.defined() ? weight.scalar_type() : input.scalar_type();
  return outputs(
      mask[0] ? make(input.sizes(), input.scalar_type(), input.suggest_memory_format())
              : at::Tensor(),
      make_if(mask[1], {C}, parameter),
      make_if(mask[2], {C}, parameter));
}

// ---- Batch norm

bool is_dense(const at::Tensor& input) {
  return input.is_contiguous() || input.is_contiguous(at::MemoryFormat::ChannelsLast) ||
      input.is_contiguous(at::MemoryFormat::ChannelsLast3d);
}

// The dtype of its statistics, or none for a call that is not plain: no elements, running
// statistics of which one is missing, parameters of other sizes or mixed dtypes.
std::optional<at::ScalarType> batch_norm_dtype(
    const at::Tensor& input,
    const at::Tensor& weight,
    const at::Tensor& bias,
    const at::Tensor& mean,
    const at::Tensor& var) {
  if (input.dim() < 2 || input.numel() == 0 || mean.defined() != var.defined()) {
    return std::nullopt;
  }
  for (const auto& parameter : {weight, bias, mean, var}) {
    if (parameter.defined() && (parameter.dim() != 1 || parameter.numel() != input.size(1))) {
      return std::nullopt;
    }
  }
  return statistics_dtype(input, {weight, bias, mean, var});
}

// The output is dense; in the input's order of dimensions where the kernel's fast path runs.
at::Tensor batch_norm_output(
    const at::Tensor& input,
    std::initializer_list<at::Tensor> parameters = {}) {
  bool dense = is_dense(input);
  for (const auto& parameter : parameters) {
    dense = dense && (!parameter.defined() || parameter.is_contiguous());
  }
  const auto format = dense && input.is_contiguous() ? at::MemoryFormat::Contiguous
      : dense && input.is_contiguous(at::MemoryFormat::ChannelsLast3d)
      ? at::MemoryFormat::ChannelsLast3d
      : dense ? at::MemoryFormat::ChannelsLast
              : input.suggest_memory_format();
  return make(input.sizes(), input.scalar_type(), format);
}

Outputs batch_norm(
    const at::Tensor& input,
    const at::Tensor& weight,
    const at::Tensor& bias,
    const at::Tensor& mean,
    const at::Tensor& var,
    bool training) {
  const auto dtype = batch_norm_dtype(input, weight, bias, mean, var);
  if (!dtype || (!training && !mean.defined())) {
    return decline();
  }
  const int64_t saved = training ? input.size(1) : 0;
  return outputs(
      batch_norm_output(input, {weight, bias, mean, var}),
      make({saved}, *dtype),
      make({saved}, *dtype));
}

Outputs batch_norm_no_statistics(
    const at::Tensor& input,
    const at::Tensor& weight,
    const at::Tensor& bias,
    bool training) {
  return batch_norm(input, weight, bias, {}, {}, training);
}

// The fourth output is what other backends reserve for the gradient.
Outputs batch_norm_with_update(
    const at::Tensor& input,
    const at::Tensor& weight,
    const at::Tensor& bias,
    const at::Tensor& mean,
    const at::Tensor& var) {
  auto result = batch_norm(input, weight, bias, mean, var, /*training=*/true);
  if (result) {
    result->push_back(make({0}, at::kByte));
  }
  return result;
}

Outputs
batch_norm_statistics(const at::Tensor& input, const at::Tensor& mean, const at::Tensor& var) {
  const auto dtype = batch_norm_dtype(input, {}, {}, mean, var);
  if (!dtype) {
    return decline();
  }
  return outputs(make({input.size(1)}, *dtype), make({input.size(1)}, *dtype));
}

Outputs batch_norm_backward(
    const at::Tensor& grad,
    const at::Tensor& input,
    const at::Tensor& weight,
    const at::Tensor& running_mean,
    const at::Tensor& running_var,
    const at::Tensor& saved_mean,
    const at::Tensor& saved_invstd,
    bool training,
    double,
    Mask mask) {
  const auto& mean = training ? saved_mean : running_mean;
  const auto& var = training ? saved_invstd : running_var;
  const auto dtype = batch_norm_dtype(input, weight, {}, mean, var);
  if (!dtype || !mean.defined() || grad.sizes() != input.sizes() ||
      grad.scalar_type() != input.scalar_type() || (mask[1] && !weight.defined())) {
    return decline();
  }
  const auto channels = {input.size(1)};
  return outputs(
      mask[0] ? batch_norm_output(input) : at::Tensor(),
      make_if(mask[1], channels, *dtype),
      make_if(mask[2], channels, *dtype));
}

// ---- Weight norm

Outputs weight_norm(const at::Tensor& v, const at::Tensor& g, int64_t dim) {
  if (v.dim() == 0 || (dim != 0 && dim != v.dim() - 1) || g.numel() != v.size(dim) ||
      g.dim() != v.dim() || !v.is_contiguous() || !g.is_contiguous() ||
      g.scalar_type() != v.scalar_type()) {
    return decline();
  }
  const bool reduced = at::isReducedFloatingType(g.scalar_type());
  return outputs(
      make(v.sizes(), v.scalar_type()), make(g.sizes(), reduced ? at::kFloat : g.scalar_type()));
}

Outputs weight_norm_backward(
    const at::Tensor& grad,
    const at::Tensor& v,
    const at::Tensor& g,
    const at::Tensor& norms,
    int64_t dim) {
  if (!weight_norm(v, g, dim) || grad.sizes() != v.sizes() || !grad.is_contiguous() ||
      grad.scalar_type() != v.scalar_type() || norms.sizes() != g.sizes() ||
      !norms.is_contiguous()) {
    return decline();
  }
  return outputs(make(v.sizes(), v.scalar_type()), make(g.sizes(), g.scalar_type()));
}

// ---- Rows

constexpr uint32_t bits(std::initializer_list<int> arguments) {
  uint32_t result = 0;
  for (const int argument : arguments) {
    result |= 1u << argument;
  }
  return result;
}

// Per element: subtract and square, sum, scale and shift. Gradients take about twice as much.
constexpr auto forward_flops = per_input<8>;
constexpr auto backward_flops = per_input<14>;

const ShapeRow kRows[] = {
    {"_batch_norm_with_update", shape<batch_norm_with_update>, forward_flops},
    {"_batch_norm_with_update.out", shape<batch_norm_with_update>, forward_flops},
    {"_native_batch_norm_legit", shape<batch_norm>, forward_flops},
    {"_native_batch_norm_legit.no_stats", shape<batch_norm_no_statistics>, forward_flops},
    {"_native_batch_norm_legit.no_stats_out", shape<batch_norm_no_statistics>, forward_flops},
    {"_native_batch_norm_legit.out", shape<batch_norm>, forward_flops},
    {"_weight_norm_interface", shape<weight_norm>, per_input<3>},
    {"_weight_norm_interface_backward", shape<weight_norm_backward>, per_input<6>},
    {"batch_norm_backward", shape<batch_norm_backward>, backward_flops},
    {"batch_norm_update_stats", shape<batch_norm_statistics>, per_input<4>, bits({1, 2})},
    {"native_batch_norm", shape<batch_norm>, forward_flops, bits({3, 4}), 5},
    {"native_batch_norm.out", shape<batch_norm>, forward_flops, bits({3, 4}), 5},
    {"native_batch_norm_backward", shape<batch_norm_backward>, backward_flops},
    {"native_group_norm", shape<group_norm>, forward_flops},
    {"native_group_norm_backward", shape<group_norm_backward>, backward_flops},
    {"native_layer_norm", shape<layer_norm>, forward_flops},
    {"native_layer_norm_backward", shape<layer_norm_backward>, backward_flops},
};

} // namespace

c10::ArrayRef<ShapeRow> normalization_rows() {
  return kRows;
}

} // namespace accel
