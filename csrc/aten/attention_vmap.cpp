// vmap over the fused attention: the mapped dimension becomes part of the batch.
#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable_backward.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <vector>

#include "structured.h"

namespace accel {

namespace {

using at::Tensor;
using at::functorch::makeBatched;
using at::functorch::maybeGetBatchedImpl;
using Forward =
    std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;
using Backward = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// A tensor at the level of the vmap that runs: its mapped dimension is the first, or it has none.
class Mapped {
 public:
  Mapped(const Tensor& tensor, int64_t level) {
    if (!tensor.defined()) {
      return;
    }
    const auto* const batched = maybeGetBatchedImpl(tensor);
    mapped_ = batched && batched->level() == level;
    value_ = mapped_ ? batched->value().movedim(batched->bdim(), 0) : tensor;
  }
  bool mapped() const {
    return mapped_;
  }
  int64_t size() const {
    return value_.size(0);
  }
  // (B, ...) for each of `size` calls, as (size * B, ...).
  Tensor folded(int64_t size) const {
    return with_size(size).flatten(0, 1);
  }
  // The same for what broadcasts to (batch, H, L, S).
  Tensor folded_mask(int64_t size, int64_t batch) const {
    const bool per_batch = value_.defined() && value_.dim() == 4 && value_.size(0) > 1;
    if (!value_.defined() || (!mapped_ && !per_batch)) {
      return value_;
    }
    auto mask = with_size(size);
    while (mask.dim() < 5) {
      mask = mask.unsqueeze(1);
    }
    return mask.expand({-1, batch, -1, -1, -1}).flatten(0, 1);
  }
  Tensor call(int64_t index) const {
    return mapped_ ? value_.select(0, index) : value_;
  }

 private:
  Tensor with_size(int64_t size) const {
    if (mapped_) {
      return value_;
    }
    at::DimVector sizes(value_.sizes());
    sizes.insert(sizes.begin(), size);
    return value_.expand(sizes);
  }

  Tensor value_;
  bool mapped_ = false;
};

int64_t size_of(std::initializer_list<const Mapped*> all) {
  const auto* const first =
      std::find_if(all.begin(), all.end(), [](const Mapped* m) { return m->mapped(); });
  return (*first)->size();
}

// The innermost vmap that maps one of the tensors, or -1.
int64_t level_of(std::initializer_list<const Tensor*> tensors) {
  int64_t level = -1;
  for (const auto* const tensor : tensors) {
    const auto* const batched = tensor->defined() ? maybeGetBatchedImpl(*tensor) : nullptr;
    level = std::max(level, batched ? batched->level() : -1);
  }
  return level;
}

// Raises what torch's batching rules of random operators raise. A draw of nothing tells the
// randomness of the vmap: it is refused, mapped (different) or not (same).
void check_randomness() {
  TORCH_CHECK(
      maybeGetBatchedImpl(at::rand({0})),
      "Vmap does not currently support same randomness with a batched tensor input. Please file an "
      "issue with functorch");
}

Forward forward(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const std::optional<Tensor>& bias,
    double dropout,
    bool causal,
    bool return_debug_mask,
    std::optional<double> scale) {
  if (dropout > 0.0) {
    check_randomness();
  }
  const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::FuncTorchBatched);
  const auto call = at::_scaled_dot_product_fused_attention_overrideable;
  const auto level = level_of({&query, &key, &value, &or_undefined(bias)});
  if (level < 0) {
    return call(query, key, value, bias, dropout, causal, return_debug_mask, scale);
  }
  const Mapped q(query, level), k(key, level), v(value, level), b(or_undefined(bias), level);
  const auto size = size_of({&q, &k, &v, &b});
  auto results = call(
      q.folded(size),
      k.folded(size),
      v.folded(size),
      or_none(b.folded_mask(size, query.size(0))),
      dropout,
      causal,
      return_debug_mask,
      scale);
  const auto unfold = [&](Tensor& result) {
    result = makeBatched(result.unflatten(0, {size, query.size(0)}), 0, level);
  };
  unfold(std::get<0>(results));
  unfold(std::get<1>(results));
  return results;
}

Backward backward(
    const Tensor& grad_out,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const Tensor& bias,
    std::array<bool, 4> mask,
    const Tensor& out,
    const Tensor& logsumexp,
    const Tensor& cum_seq_q,
    const Tensor& cum_seq_k,
    c10::SymInt max_q,
    c10::SymInt max_k,
    double dropout,
    bool causal,
    const Tensor& seed,
    const Tensor& offset,
    std::optional<double> scale) {
  const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::FuncTorchBatched);
  const auto level = level_of({&grad_out, &query, &key, &value, &bias, &out, &logsumexp});
  const Mapped g(grad_out, level), q(query, level), k(key, level), v(value, level), b(bias, level),
      o(out, level), l(logsumexp, level);
  const auto call = [&](const Tensor& grad_out,
                        const Tensor& query,
                        const Tensor& key,
                        const Tensor& value,
                        const Tensor& bias,
                        const Tensor& out,
                        const Tensor& logsumexp) {
    return at::_scaled_dot_product_fused_attention_overrideable_backward_symint(
        grad_out,
        query,
        key,
        value,
        bias,
        mask,
        out,
        logsumexp,
        cum_seq_q,
        cum_seq_k,
        max_q,
        max_k,
        dropout,
        causal,
        seed,
        offset,
        scale);
  };
  if (level < 0) {
    return call(grad_out, query, key, value, bias, out, logsumexp);
  }
  const auto size = size_of({&g, &q, &k, &v, &b, &o, &l});
  std::array<Tensor, 3> grads;
  if (dropout > 0.0 && !o.mapped()) {
    // Every gradient belongs to the same weights: the draws of one forward call.
    std::array<std::vector<Tensor>, 3> parts;
    for (int64_t i = 0; i < size; ++i) {
      const auto one =
          call(g.call(i), q.call(i), k.call(i), v.call(i), b.call(i), o.call(i), l.call(i));
      parts[0].push_back(std::get<0>(one));
      parts[1].push_back(std::get<1>(one));
      parts[2].push_back(std::get<2>(one));
    }
    std::transform(parts.begin(), parts.end(), grads.begin(), [](const auto& part) {
      return at::stack(part);
    });
  } else {
    const auto all = call(
        g.folded(size),
        q.folded(size),
        k.folded(size),
        v.folded(size),
        b.folded_mask(size, query.size(0)),
        o.folded(size),
        l.folded(size));
    grads = {std::get<0>(all), std::get<1>(all), std::get<2>(all)};
    for (auto& grad : grads) {
      grad = grad.unflatten(0, {size, query.size(0)});
    }
  }
  const auto batched = [&](const Tensor& grad) { return makeBatched(grad, 0, level); };
  return {batched(grads[0]), batched(grads[1]), batched(grads[2]), Tensor()};
}

TORCH_LIBRARY_IMPL(aten, FuncTorchBatched, m) {
  m.impl("_scaled_dot_product_fused_attention_overrideable", TORCH_FN(forward));
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", TORCH_FN(backward));
}

} // namespace

} // namespace accel
