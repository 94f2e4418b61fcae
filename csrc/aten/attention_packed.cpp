// torch's operators over packed sequences: _efficient_attention_* (nested tensors of jagged layout,
// see torch_accel/_compat.py) and _flash_attention_* (torch.nn.attention.varlen). They differ in
// layouts, and in where the diagonal of a causal mask lies.
#include "attention_packed.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/library.h>

#include "../runtime/stream.h"
#include "structured.h"

namespace accel {

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using OptionalSize = std::optional<c10::SymInt>;
using attention::Options;
using attention::Window;

Tensor packed(const Tensor& tensor) {
  const auto flat = tensor.dim() == 4 ? tensor.flatten(0, 1) : tensor;
  return flat.stride(-1) == 1 ? flat : flat.contiguous();
}

// The operands of a call, checked and packed.
struct Call {
  const char* name;
  Tensor query;
  Tensor key;
  Tensor value;
  Tensor query_offsets;
  Tensor key_offsets;
  Tensor used;
  int64_t count;

  Call(
      const char* name,
      const Tensor& query,
      const Tensor& key,
      const Tensor& value,
      const Tensor& query_offsets,
      const Tensor& key_offsets,
      const Tensor& used)
      : name(name), query_offsets(query_offsets), key_offsets(key_offsets), used(used) {
    check_common_device(
        name,
        std::nullopt,
        "query",
        query,
        "key",
        key,
        "value",
        value,
        "cum_seq_q",
        query_offsets,
        "cum_seq_k",
        key_offsets,
        "seqused_k",
        used);
    const auto dtype = query.scalar_type();
    TORCH_CHECK(
        at::isFloatingType(dtype) && !at::isFloat8Type(dtype) && key.scalar_type() == dtype &&
            value.scalar_type() == dtype,
        "accel: ",
        name,
        " expects query, key and value of one floating point dtype of 16 bits or more, but got ",
        dtype,
        ", ",
        key.scalar_type(),
        " and ",
        value.scalar_type());
    const bool ragged = query_offsets.defined();
    const auto rank = query.dim();
    TORCH_CHECK(
        (rank == 4 || (rank == 3 && ragged)) && key.dim() == rank && value.dim() == rank,
        "accel: ",
        name,
        " expects (batch, length, heads, features) or, with offsets, (total, heads, features), but "
        "got ",
        query.sizes(),
        ", ",
        key.sizes(),
        " and ",
        value.sizes());
    const auto heads = rank - 2;
    TORCH_CHECK(
        key.sizes().slice(0, heads + 1) == value.sizes().slice(0, heads + 1) &&
            query.size(-1) == key.size(-1) && key.size(heads) > 0 &&
            query.size(heads) % key.size(heads) == 0 &&
            (rank == 3 || query.size(0) == key.size(0)) &&
            (!ragged || rank == 3 || query.size(0) == 1),
        "accel: ",
        name,
        " expects keys and values of one shape but for the features, and a multiple of their heads "
        "in the query, but got ",
        query.sizes(),
        ", ",
        key.sizes(),
        " and ",
        value.sizes());
    TORCH_CHECK(
        ragged == key_offsets.defined() &&
            (!ragged ||
             (query_offsets.dim() == 1 && query_offsets.numel() > 0 &&
              query_offsets.sizes() == key_offsets.sizes() &&
              at::isIntegralType(query_offsets.scalar_type(), false) &&
              at::isIntegralType(key_offsets.scalar_type(), false))),
        "accel: ",
        name,
        " expects one-dimensional integer offsets of one length for queries and keys, or none");
    count = ragged ? query_offsets.numel() - 1 : query.size(0);
    TORCH_CHECK(
        !used.defined() || (used.dim() == 1 && used.numel() == count),
        "accel: ",
        name,
        " expects a number of keys for each of ",
        count,
        " sequences, but got ",
        used.sizes());
    this->query = packed(query);
    this->key = packed(key);
    this->value = packed(value);
  }

  at::ScalarType sum_type() const {
    return query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  }
  c10::Stream stream() const {
    return current_stream(query.device().index());
  }
};

Options
options_of(const Tensor& query, std::optional<double> scale, double dropout, Window window) {
  TORCH_CHECK(
      dropout >= 0.0 && dropout <= 1.0,
      "dropout probability has to be between 0 and 1, but got ",
      dropout);
  return {scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(-1)))), dropout, window};
}

// Fills `out` (any shape of as many elements as the packed output) and logsumexp; returns what it
// draws with.
CallKey forward(const Call& call, const Tensor& out, const Tensor& logsumexp, Options options) {
  if (options.dropout > 0.0) {
    auto* const generator = generator_or_default(std::nullopt, call.query.device());
    TORCH_CHECK_NOT_IMPLEMENTED(
        !generator->cpu(), "accel: ", call.name, " has no dropout with ACCEL_RNG=cpu");
    options.key = reserve_key(generator);
  }
  const auto flat = out.dim() == 4 ? out.flatten(0, 1) : out;
  launch(
      "attention_packed",
      call.stream(),
      {writes(flat),
       writes(logsumexp),
       reads(call.query),
       reads(call.key),
       reads(call.value),
       reads(call.query_offsets),
       reads(call.key_offsets),
       reads(call.used)},
      [options, count = call.count](at::TensorList t) {
        attention::forward_packed(t[0], t[1], t[2], t[3], t[4], {t[5], t[6], t[7], count}, options);
      });
  return options.key;
}

struct Grads {
  Tensor query;
  Tensor key;
  Tensor value;
};

Grads backward(
    const Call& call,
    const Tensor& grad_out,
    const Tensor& out,
    const Tensor& logsumexp,
    const Options& options) {
  const auto make = [](const Tensor& like) { return at::empty(like.sizes(), like.options()); };
  const Grads grads{make(call.query), make(call.key), make(call.value)};
  const auto grad = packed(grad_out), result = packed(out);
  launch(
      "attention_packed_backward",
      call.stream(),
      {writes(grads.query),
       writes(grads.key),
       writes(grads.value),
       reads(grad),
       reads(call.query),
       reads(call.key),
       reads(call.value),
       reads(result),
       reads(logsumexp),
       reads(call.query_offsets),
       reads(call.key_offsets)},
      [options, count = call.count](at::TensorList t) {
        attention::backward_packed(
            t[0],
            t[1],
            t[2],
            t[3],
            t[4],
            t[5],
            t[6],
            t[7],
            t[8],
            {t[9], t[10], at::Tensor(), count},
            options);
      });
  return grads;
}

at::DimVector output_sizes(const Tensor& query, const Tensor& value) {
  at::DimVector sizes(query.sizes());
  sizes.back() = value.size(-1);
  return sizes;
}

// On the host: the backward reads there what to draw with.
Tensor host_number(int64_t number) {
  return at::scalar_tensor(number, at::TensorOptions(at::kLong));
}

// ---- _efficient_attention

constexpr int64_t kSumsAlignment = 32; // of the rows of its logsumexp

Window window_of(int64_t custom_mask_type, const std::optional<int64_t>& window_size) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      window_size.value_or(0) <= 0,
      "accel: _efficient_attention_forward has no window_size; use _flash_attention_forward");
  TORCH_CHECK(
      custom_mask_type >= 0 && custom_mask_type <= 2,
      "accel: _efficient_attention_forward expects a custom_mask_type of 0 (none), 1 (causal from "
      "the top "
      "left) or 2 (causal from the bottom right), but got ",
      custom_mask_type);
  return {Window::kAll, custom_mask_type == 0 ? Window::kAll : 0, custom_mask_type == 2};
}

void check_no_bias(const OptionalTensor& bias) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !or_undefined(bias).defined(),
      "accel: _efficient_attention_forward has no bias; use "
      "torch.nn.functional.scaled_dot_product_attention");
}

std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt> efficient_forward(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const OptionalTensor& bias,
    const OptionalTensor& query_offsets,
    const OptionalTensor& key_offsets,
    OptionalSize max_query,
    OptionalSize max_key,
    double dropout,
    int64_t custom_mask_type,
    bool compute_logsumexp,
    std::optional<double> scale,
    const OptionalTensor& used,
    std::optional<int64_t> window_size) {
  check_no_bias(bias);
  const Call call(
      "_efficient_attention_forward",
      query,
      key,
      value,
      or_undefined(query_offsets),
      or_undefined(key_offsets),
      or_undefined(used));
  const bool ragged = call.query_offsets.defined();
  TORCH_CHECK(
      !ragged || (max_query && max_key),
      "accel: _efficient_attention_forward expects max_seqlen_q and max_seqlen_k with offsets");
  const auto longest = ragged ? *max_query : c10::SymInt(query.size(1));
  const auto rows = longest.guard_int(__FILE__, __LINE__);
  const auto aligned = (rows + kSumsAlignment - 1) / kSumsAlignment * kSumsAlignment;
  const auto out = at::empty(output_sizes(query, value), query.options());
  const auto logsumexp =
      at::empty({call.count, query.size(-2), aligned}, query.options().dtype(call.sum_type()));
  const auto drawn = forward(
      call,
      out,
      logsumexp,
      options_of(query, scale, dropout, window_of(custom_mask_type, window_size)));
  const auto [seed, offset] = drawn.pack();
  return {
      out,
      compute_logsumexp ? logsumexp : logsumexp.narrow(2, 0, 0),
      host_number(seed),
      host_number(offset),
      longest,
      ragged ? *max_key : c10::SymInt(key.size(1))};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> efficient_backward(
    const Tensor& grad_out,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const OptionalTensor& bias,
    const Tensor& out,
    const OptionalTensor& query_offsets,
    const OptionalTensor& key_offsets,
    c10::SymInt,
    c10::SymInt,
    const Tensor& logsumexp,
    double dropout,
    const Tensor& seed,
    const Tensor& offset,
    int64_t custom_mask_type,
    bool,
    std::optional<double> scale,
    std::optional<int64_t>,
    std::optional<int64_t> window_size,
    bool) {
  if (!grad_out.defined()) {
    return {};
  }
  check_no_bias(bias);
  const Call call(
      "_efficient_attention_backward",
      query,
      key,
      value,
      or_undefined(query_offsets),
      or_undefined(key_offsets),
      {});
  auto options = options_of(query, scale, dropout, window_of(custom_mask_type, window_size));
  if (dropout > 0.0) {
    options.key = CallKey::unpack(seed.item<int64_t>(), offset.item<int64_t>());
  }
  const auto grads = backward(call, grad_out, out, logsumexp, options);
  return {
      grads.query.view(query.sizes()),
      grads.key.view(key.sizes()),
      grads.value.view(value.sizes()),
      Tensor()};
}

// ---- _flash_attention

// As FlashAttention: the diagonal ends in the lower right corner; causal is nothing to its right.
Window window_of(bool causal, const OptionalSize& left, const OptionalSize& right) {
  const auto limit = [](const OptionalSize& size) {
    return size ? size->guard_int(__FILE__, __LINE__) : Window::kAll;
  };
  return {limit(left), causal ? 0 : limit(right), true};
}

void check_no_debug_mask(bool return_debug_mask) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !return_debug_mask,
      "accel: _flash_attention_forward makes no debug mask; leave return_debug_mask out");
}

Tensor flash_into(
    const Call& call,
    const Tensor& out,
    const Options& options,
    const OptionalTensor& alibi_slopes,
    const OptionalTensor& block_table,
    CallKey* drawn) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !or_undefined(alibi_slopes).defined() && !or_undefined(block_table).defined(),
      "accel: _flash_attention_forward has neither alibi_slopes nor a block_table");
  const auto type = call.query.options().dtype(call.sum_type());
  const auto heads = call.query.size(1);
  const auto logsumexp = call.query_offsets.defined()
      ? at::empty({heads, call.query.size(0)}, type)
      : at::empty({call.count, heads, out.size(1)}, type);
  *drawn = forward(call, out, logsumexp, options);
  return logsumexp;
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> flash_forward(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const OptionalTensor& query_offsets,
    const OptionalTensor& key_offsets,
    c10::SymInt,
    c10::SymInt,
    double dropout,
    bool causal,
    bool return_debug_mask,
    std::optional<double> scale,
    OptionalSize left,
    OptionalSize right,
    const OptionalTensor& used,
    const OptionalTensor& alibi_slopes,
    const OptionalTensor& block_table,
    std::optional<int64_t>) {
  check_no_debug_mask(return_debug_mask);
  const Call call(
      "_flash_attention_forward",
      query,
      key,
      value,
      or_undefined(query_offsets),
      or_undefined(key_offsets),
      or_undefined(used));
  const auto out = at::empty(output_sizes(query, value), query.options());
  CallKey drawn{0};
  const auto logsumexp = flash_into(
      call,
      out,
      options_of(query, scale, dropout, window_of(causal, left, right)),
      alibi_slopes,
      block_table,
      &drawn);
  const auto [seed, offset] = drawn.pack();
  return {out, logsumexp, host_number(seed), host_number(offset), at::empty({0}, query.options())};
}

Tensor flash_forward_inplace(
    Tensor& out,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const OptionalTensor& query_offsets,
    const OptionalTensor& key_offsets,
    c10::SymInt,
    c10::SymInt,
    double dropout,
    bool causal,
    bool return_debug_mask,
    std::optional<double> scale,
    OptionalSize left,
    OptionalSize right,
    const OptionalTensor& used,
    const OptionalTensor& alibi_slopes,
    const OptionalTensor& block_table,
    std::optional<int64_t>) {
  check_no_debug_mask(return_debug_mask);
  constexpr const char* kName = "_flash_attention_forward_no_dropout_inplace";
  TORCH_CHECK(dropout == 0.0, "accel: ", kName, " has no dropout");
  check_common_device(kName, std::nullopt, "out", out, "query", query);
  TORCH_CHECK(
      out.sizes() == at::IntArrayRef(output_sizes(query, value)) &&
          out.scalar_type() == query.scalar_type() && out.is_contiguous(),
      "accel: ",
      kName,
      " expects a contiguous out of ",
      at::IntArrayRef(output_sizes(query, value)),
      " and the dtype of the query, but got ",
      out.sizes());
  const Call call(
      kName,
      query,
      key,
      value,
      or_undefined(query_offsets),
      or_undefined(key_offsets),
      or_undefined(used));
  CallKey drawn{0};
  return flash_into(
      call,
      out,
      options_of(query, scale, 0.0, window_of(causal, left, right)),
      alibi_slopes,
      block_table,
      &drawn);
}

std::tuple<Tensor, Tensor, Tensor> flash_backward(
    const Tensor& grad_out,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const Tensor& out,
    const Tensor& logsumexp,
    const Tensor& query_offsets,
    const Tensor& key_offsets,
    c10::SymInt,
    c10::SymInt,
    double dropout,
    bool causal,
    const Tensor& rng_state,
    const Tensor& offset,
    std::optional<double> scale,
    OptionalSize left,
    OptionalSize right) {
  if (!grad_out.defined()) {
    return {};
  }
  const Call call(
      "_flash_attention_backward", query, key, value, query_offsets, key_offsets, Tensor());
  auto options = options_of(query, scale, dropout, window_of(causal, left, right));
  if (dropout > 0.0) {
    options.key = CallKey::unpack(rng_state.item<int64_t>(), offset.item<int64_t>());
  }
  const auto grads = backward(call, grad_out, out, logsumexp, options);
  return {
      grads.query.view(query.sizes()),
      grads.key.view(key.sizes()),
      grads.value.view(value.sizes())};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_efficient_attention_forward", TORCH_FN(efficient_forward));
  m.impl("_efficient_attention_backward", TORCH_FN(efficient_backward));
  m.impl("_flash_attention_forward", TORCH_FN(flash_forward));
  m.impl("_flash_attention_forward_no_dropout_inplace", TORCH_FN(flash_forward_inplace));
  m.impl("_flash_attention_backward", TORCH_FN(flash_backward));
}

} // namespace

} // namespace accel
