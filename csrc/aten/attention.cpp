// scaled_dot_product_attention. Where the CPU takes its flash kernel, accel runs that kernel,
// queued, behind torch's overrideable operators; with dropout, which that kernel lacks, one of its
// own (attention_kernels.h). Elsewhere torch's composite form runs.
#include "attention_kernels.h"

#include <ATen/Context.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_permuted.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/library.h>

#include "../runtime/stream.h"
#include "structured.h"

namespace accel {

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// What the CPU asks before it takes its flash kernel, but for dropout. `warn`: says what is
// missing.
bool fits_flash(const sdp::sdp_params& params, bool warn = false) {
  const auto& [query, key, value, mask, dropout, causal, gqa] = params;
  if (query.is_nested() || key.is_nested() || value.is_nested()) {
    return false;
  }
  const auto dtype = query.scalar_type();
  const bool supported =
      dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16 || dtype == at::kHalf;
  return supported && key.scalar_type() == dtype && value.scalar_type() == dtype &&
      sdp::check_tensor_shapes(params, warn) &&
      sdp::check_batch_size_and_num_heads_dense</*supports_gqa=*/true>(params, warn) &&
      query.size(-1) == key.size(-1) && query.size(-1) == value.size(-1) &&
      sdp::check_attn_mask_shape(params, warn) &&
      sdp::check_nonzero_sequence_lengths_dense(params, warn) &&
      // Of masks it asks that on other devices than the CPU only.
      sdp::check_last_dim_stride_equals_1_dense</*ignore_singleton_dim=*/false>(
             {query, key, value, std::nullopt, dropout, causal, gqa}, warn) &&
      !(mask.has_value() && mask->requires_grad());
}

int64_t choose(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const OptionalTensor& mask,
    double dropout,
    bool causal,
    std::optional<double>,
    bool gqa) {
  const auto& context = at::globalContext();
  const bool fits = fits_flash({query, key, value, mask, dropout, causal, gqa});
  // With ACCEL_RNG=cpu draws are the CPU's, in the order of its composite form.
  const bool drawn = dropout > 0.0 && generator_or_default(std::nullopt, query.device())->cpu();
  if (fits && !drawn && context.userEnabledOverrideableSDP()) {
    return static_cast<int64_t>(sdp::SDPBackend::overrideable);
  }
  if (fits && dropout == 0.0 && context.userEnabledFlashSDP()) {
    return static_cast<int64_t>(sdp::SDPBackend::flash_attention);
  }
  if (context.userEnabledMathSDP()) {
    return static_cast<int64_t>(sdp::SDPBackend::math);
  }
  TORCH_CHECK(
      context.userEnabledOverrideableSDP() || context.userEnabledFlashSDP(),
      "No viable backend for scaled_dot_product_attention was found. ",
      "This is likely due to turning off both the math kernel and the fused kernels.");
  TORCH_WARN("Flash attention kernel not used because:");
  fits_flash({query, key, value, mask, dropout, causal, gqa}, /*warn=*/true);
  TORCH_CHECK(false, "No available kernel.  Aborting execution.");
}

attention::Options options_of(
    const Tensor& query,
    std::optional<double> scale,
    double dropout,
    bool causal,
    CallKey key) {
  return {
      scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(-1)))),
      dropout,
      attention::Window::causal(causal),
      key};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>
attention_forward(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const OptionalTensor& bias,
    double dropout,
    bool causal,
    bool return_debug_mask,
    std::optional<double> scale) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !return_debug_mask,
      "accel: _scaled_dot_product_fused_attention_overrideable makes no debug mask; leave "
      "return_debug_mask out");
  Tensor out;
  Tensor logsumexp;
  CallKey drawn(0);
  if (dropout == 0.0) {
    std::tie(out, logsumexp) = at::_scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, causal, bias, scale);
  } else {
    TORCH_CHECK(
        dropout > 0.0 && dropout <= 1.0,
        "dropout probability has to be between 0 and 1, but got ",
        dropout);
    drawn = reserve_key(generator_or_default(std::nullopt, query.device()));
    out = at::empty_like(query);
    logsumexp = at::empty(
        query.sizes().slice(0, 3),
        query.options().dtype(query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat));
    launch(
        "scaled_dot_product_attention",
        current_stream(query.device().index()),
        {writes(out),
         writes(logsumexp),
         reads(query),
         reads(key),
         reads(value),
         reads(or_undefined(bias))},
        [options = options_of(query, scale, dropout, causal, drawn)](at::TensorList t) {
          attention::forward(t[0], t[1], t[2], t[3], t[4], t[5], options);
        });
  }
  // On the host: the backward reads there what to draw with.
  const auto host = at::TensorOptions(at::kLong);
  const auto [seed, offset] = drawn.pack();
  return {
      out,
      logsumexp,
      Tensor(),
      Tensor(),
      query.sym_size(2),
      key.sym_size(2),
      at::scalar_tensor(seed, host),
      at::scalar_tensor(offset, host),
      Tensor()};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> attention_backward(
    const Tensor& grad_out,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const Tensor& bias,
    std::array<bool, 4> mask,
    const Tensor& out,
    const Tensor& logsumexp,
    const Tensor&,
    const Tensor&,
    c10::SymInt,
    c10::SymInt,
    double dropout,
    bool causal,
    const Tensor& seed,
    const Tensor& offset,
    std::optional<double> scale) {
  if (!grad_out.defined()) {
    return {};
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      !mask[3],
      "accel: the fused attention has no gradient of its mask; use "
      "torch.nn.attention.sdpa_kernel(SDPBackend.MATH)");
  Tensor grad_query;
  Tensor grad_key;
  Tensor grad_value;
  if (dropout == 0.0) {
    const auto attn_mask = bias.defined() ? OptionalTensor(bias) : std::nullopt;
    std::tie(grad_query, grad_key, grad_value) =
        at::_scaled_dot_product_flash_attention_for_cpu_backward(
            grad_out, query, key, value, out, logsumexp, 0.0, causal, attn_mask, scale);
  } else {
    const auto make = [](const Tensor& like) {
      return at::empty_permuted(like.sizes(), {0, 2, 1, 3}, like.options());
    };
    grad_query = make(query);
    grad_key = make(key);
    grad_value = make(value);
    launch(
        "scaled_dot_product_attention_backward",
        current_stream(query.device().index()),
        {writes(grad_query),
         writes(grad_key),
         writes(grad_value),
         reads(grad_out),
         reads(query),
         reads(key),
         reads(value),
         reads(logsumexp),
         reads(bias)},
        [options = options_of(
             query,
             scale,
             dropout,
             causal,
             CallKey::unpack(seed.item<int64_t>(), offset.item<int64_t>()))](at::TensorList t) {
          attention::backward(t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], options);
        });
  }
  return {grad_query, grad_key, grad_value, Tensor()};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_sdp_choice", TORCH_FN(choose));
  m.impl("_scaled_dot_product_fused_attention_overrideable", TORCH_FN(attention_forward));
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", TORCH_FN(attention_backward));
}

} // namespace

} // namespace accel

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &accel::choose)
} // namespace at::native
