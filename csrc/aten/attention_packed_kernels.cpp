#include "attention_packed.h"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>

namespace accel::attention {

namespace {

struct Range {
  int64_t first;
  int64_t length;
};

// The sequences of one of the operands.
class Ranges {
 public:
  Ranges(const at::Tensor& offsets, const at::Tensor& used, const at::Tensor& packed, int64_t count)
      : offsets_(offsets.defined() ? offsets.to(at::kLong).contiguous() : offsets),
        used_(used.defined() ? used.to(at::kLong).contiguous() : used),
        length_(count > 0 ? packed.size(0) / count : 0) {}

  Range operator[](int64_t i) const {
    Range range{i * length_, length_};
    if (offsets_.defined()) {
      const auto* const offsets = offsets_.const_data_ptr<int64_t>();
      range = {offsets[i], offsets[i + 1] - offsets[i]};
    }
    if (used_.defined()) {
      range.length = std::min(range.length, used_.const_data_ptr<int64_t>()[i]);
    }
    return range;
  }

 private:
  at::Tensor offsets_;
  at::Tensor used_;
  int64_t length_;
};

// (length, H, E) of a sequence as (1, H, length, E).
at::Tensor heads(const at::Tensor& packed, const Range& range) {
  return packed.narrow(0, range.first, range.length).transpose(0, 1).unsqueeze(0);
}

at::Tensor sums(const at::Tensor& logsumexp, int64_t sequence, const Range& rows) {
  return (logsumexp.dim() == 2 ? logsumexp.narrow(1, rows.first, rows.length)
                               : logsumexp[sequence].narrow(1, 0, rows.length))
      .unsqueeze(0);
}

// Whether the CPU's flash kernel computes that.
bool serves(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const Options& options) {
  const auto& window = options.window;
  const bool square = query.size(2) == key.size(2);
  return options.dropout == 0.0 && query.size(2) > 0 && key.size(2) > 0 &&
      query.size(3) == value.size(3) && query.size(3) > 0 && window.left < 0 &&
      (window.right < 0 || (window.right == 0 && (square || !window.lower_right)));
}

// Calls `each(i, rows, columns, options)` for each sequence.
template <class Each>
void for_each(
    const Sequences& sequences,
    const at::Tensor& query,
    const at::Tensor& key,
    Options options,
    const Each& each) {
  const Ranges rows(sequences.query_offsets, {}, query, sequences.count);
  const Ranges columns(sequences.key_offsets, sequences.used, key, sequences.count);
  for (int64_t i = 0; i < sequences.count; ++i) {
    each(i, rows[i], columns[i], options);
    options.first_draw += static_cast<uint64_t>(query.size(1) * rows[i].length * columns[i].length);
  }
}

} // namespace

void forward_packed(
    const at::Tensor& out,
    const at::Tensor& logsumexp,
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const Sequences& sequences,
    Options options) {
  out.zero_();
  logsumexp.zero_();
  for_each(
      sequences,
      query,
      key,
      options,
      [&](int64_t i, const Range& rows, const Range& columns, const Options& each) {
        const auto q = heads(query, rows), k = heads(key, columns), v = heads(value, columns);
        const auto result = heads(out, rows), sum = sums(logsumexp, i, rows);
        if (!serves(q, k, v, each)) {
          forward(result, sum, q, k, v, {}, each);
          return;
        }
        const auto [flash, flash_sum] = at::_scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, each.window.right == 0, {}, each.scale);
        result.copy_(flash);
        sum.copy_(flash_sum);
      });
}

void backward_packed(
    const at::Tensor& grad_query,
    const at::Tensor& grad_key,
    const at::Tensor& grad_value,
    const at::Tensor& grad_out,
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const at::Tensor& out,
    const at::Tensor& logsumexp,
    const Sequences& sequences,
    Options options) {
  for (const auto& grad : {grad_query, grad_key, grad_value}) {
    grad.zero_();
  }
  for_each(
      sequences,
      query,
      key,
      options,
      [&](int64_t i, const Range& rows, const Range& columns, const Options& each) {
        const auto q = heads(query, rows), k = heads(key, columns), v = heads(value, columns);
        const auto grad = heads(grad_out, rows), sum = sums(logsumexp, i, rows);
        const auto grad_q = heads(grad_query, rows), grad_k = heads(grad_key, columns),
                   grad_v = heads(grad_value, columns);
        if (!serves(q, k, v, each)) {
          backward(grad_q, grad_k, grad_v, grad, q, k, v, sum, {}, each);
          return;
        }
        const auto [flash_q, flash_k, flash_v] =
            at::_scaled_dot_product_flash_attention_for_cpu_backward(
                grad, q, k, v, heads(out, rows), sum, 0.0, each.window.right == 0, {}, each.scale);
        grad_q.copy_(flash_q);
        grad_k.copy_(flash_k);
        grad_v.copy_(flash_v);
      });
}

} // namespace accel::attention
