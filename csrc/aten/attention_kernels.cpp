#include "attention_kernels.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "random_kernels.h"

namespace accel::attention {

namespace {

constexpr int64_t kRows = 64; // of scores at a time
constexpr int64_t kScores = 1 << 20; // at most, but for one row

// Float32 for half precisions.
at::ScalarType accumulate_type(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// The columns [begin, end) that a row sees.
std::pair<int64_t, int64_t>
visible(const Window& window, int64_t row, int64_t rows, int64_t columns) {
  const auto diagonal = row + (window.lower_right ? columns - rows : 0);
  const auto end =
      window.right < 0 ? columns : std::clamp<int64_t>(diagonal + window.right + 1, 0, columns);
  const auto begin = window.left < 0 ? 0 : std::clamp<int64_t>(diagonal - window.left, 0, end);
  return {begin, end};
}

// The block of rows [first, first + rows) of one head, and the columns that any of them sees.
struct Block {
  int64_t batch;
  int64_t head;
  int64_t first;
  int64_t rows;
  int64_t begin;
  int64_t columns;
};

class Head {
 public:
  Head(
      const at::Tensor& query,
      const at::Tensor& key,
      const at::Tensor& value,
      const at::Tensor& mask,
      const Options& options)
      : options_(options),
        query_(query),
        key_(key),
        value_(value),
        mask_(
            mask.defined() ? mask.expand({query.size(0), query.size(1), query.size(2), key.size(2)})
                           : mask),
        type_(accumulate_type(query)),
        groups_(query.size(1) / key.size(1)) {}

  int64_t rows_per_block() const {
    return std::clamp<int64_t>(kScores / std::max<int64_t>(columns(), 1), 1, kRows);
  }
  int64_t rows() const {
    return query_.size(2);
  }
  int64_t groups() const {
    return groups_;
  }
  at::TensorOptions options() const {
    return type_;
  }
  Block block(int64_t batch, int64_t head, int64_t first) const {
    const auto rows = std::min(rows_per_block(), this->rows() - first);
    const auto begin = visible(options_.window, first, this->rows(), columns()).first;
    const auto end = visible(options_.window, first + rows - 1, this->rows(), columns()).second;
    return {batch, head, first, rows, begin, std::max<int64_t>(end - begin, 0)};
  }

  at::Tensor query(const Block& block) const {
    return rows_of(query_, block);
  }
  at::Tensor rows_of(const at::Tensor& tensor, const Block& block) const {
    return tensor[block.batch][block.head].narrow(0, block.first, block.rows).to(type_);
  }
  at::Tensor key(const Block& block) const {
    return columns_of(key_, block);
  }
  at::Tensor value(const Block& block) const {
    return columns_of(value_, block);
  }

  // Scaled and masked scores of a block.
  at::Tensor scores(const Block& block) const {
    auto result = at::mm(query(block), key(block).t()).mul_(options_.scale);
    if (mask_.defined()) {
      const auto mask = mask_[block.batch][block.head]
                            .narrow(0, block.first, block.rows)
                            .narrow(1, block.begin, block.columns);
      if (mask.scalar_type() == at::kBool) {
        result.masked_fill_(mask.logical_not(), kMasked);
      } else {
        result.add_(mask);
      }
    }
    if (options_.window.left >= 0 || options_.window.right >= 0) {
      AT_DISPATCH_FLOATING_TYPES(
          type_, "attention_accel", [&] { hide(result.mutable_data_ptr<scalar_t>(), block); });
    }
    return result;
  }

  // 0 where a weight is dropped, 1 / (1 - p) where it is kept; undefined if all are kept.
  at::Tensor factors(const Block& block) const {
    if (options_.dropout == 0.0) {
      return {};
    }
    const auto uniform = at::empty({block.rows, block.columns}, at::kFloat);
    auto* const data = uniform.mutable_data_ptr<float>();
    const auto head = (block.batch * query_.size(1) + block.head) * rows();
    for (int64_t i = 0; i < block.rows; ++i) {
      const auto first = (head + block.first + i) * columns() + block.begin;
      random::uniforms(
          data + i * block.columns,
          options_.key.resolve(),
          options_.first_draw + static_cast<uint64_t>(first),
          block.columns);
    }
    const auto kept = uniform.lt(static_cast<float>(1.0 - options_.dropout)).to(type_);
    return options_.dropout < 1.0 ? kept.mul_(1.0 / (1.0 - options_.dropout)) : kept;
  }

 private:
  static constexpr double kMasked = -std::numeric_limits<double>::infinity();

  int64_t columns() const {
    return key_.size(2);
  }
  at::Tensor columns_of(const at::Tensor& tensor, const Block& block) const {
    return tensor[block.batch][block.head / groups_]
        .narrow(0, block.begin, block.columns)
        .to(type_);
  }
  // Masks what lies outside the window.
  template <class T>
  void hide(T* data, const Block& block) const {
    for (int64_t i = 0; i < block.rows; ++i) {
      const auto [begin, end] = visible(options_.window, block.first + i, rows(), columns());
      T* const row = data + i * block.columns;
      std::fill(row, row + std::clamp<int64_t>(begin - block.begin, 0, block.columns), kMasked);
      std::fill(
          row + std::clamp<int64_t>(end - block.begin, 0, block.columns),
          row + block.columns,
          kMasked);
    }
  }

  const Options& options_;
  const at::Tensor& query_;
  const at::Tensor& key_;
  const at::Tensor& value_;
  at::Tensor mask_;
  at::ScalarType type_;
  int64_t groups_;
};

at::Tensor times(const at::Tensor& weights, const at::Tensor& factors) {
  return factors.defined() ? weights.mul(factors) : weights;
}

// Turns scores into weights, and returns their log-sum-exp a row; a row that sees nothing is 0.
void softmax(const at::Tensor& scores, const at::Tensor& logsumexp) {
  if (scores.size(1) == 0) {
    logsumexp.zero_();
    return;
  }
  auto largest = scores.amax(1, /*keepdim=*/true);
  largest.masked_fill_(largest.isneginf(), 0);
  scores.sub_(largest).exp_();
  auto sums = scores.sum(1, /*keepdim=*/true);
  sums.masked_fill_(sums.eq(0), 1);
  scores.div_(sums);
  logsumexp.copy_(largest.add_(sums.log_()).squeeze(1));
}

void forward_block(
    const Head& head,
    const Block& block,
    const at::Tensor& out,
    const at::Tensor& logsumexp) {
  const auto weights = head.scores(block);
  softmax(weights, logsumexp[block.batch][block.head].narrow(0, block.first, block.rows));
  out[block.batch][block.head]
      .narrow(0, block.first, block.rows)
      .copy_(at::mm(times(weights, head.factors(block)), head.value(block)));
}

void backward_block(
    const Head& head,
    const Block& block,
    const at::Tensor& grad_query,
    const at::Tensor& grad_key, // of this head, accumulated
    const at::Tensor& grad_value,
    const at::Tensor& grad_out,
    const at::Tensor& logsumexp,
    double scale) {
  const auto weights = head.scores(block);
  const auto sums =
      logsumexp[block.batch][block.head].narrow(0, block.first, block.rows).unsqueeze(1);
  weights.sub_(sums).exp_();
  const auto factors = head.factors(block);
  const auto grad = head.rows_of(grad_out, block);
  const auto of_columns = [&](const at::Tensor& sum) {
    return sum.narrow(0, block.begin, block.columns);
  };
  of_columns(grad_value).addmm_(times(weights, factors).t(), grad);
  const auto grad_weights = times(at::mm(grad, head.value(block).t()), factors);
  const auto mean = grad_weights.mul(weights).sum(1, /*keepdim=*/true);
  const auto grad_scores = grad_weights.sub_(mean).mul_(weights).mul_(scale);
  grad_query[block.batch][block.head]
      .narrow(0, block.first, block.rows)
      .copy_(at::mm(grad_scores, head.key(block)));
  of_columns(grad_key).addmm_(grad_scores.t(), head.query(block));
}

} // namespace

void forward(
    const at::Tensor& out,
    const at::Tensor& logsumexp,
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const at::Tensor& mask,
    const Options& options) {
  const Head head(query, key, value, mask, options);
  const auto step = head.rows_per_block();
  const auto blocks = (head.rows() + step - 1) / step;
  const auto heads = query.size(1);
  at::parallel_for(0, query.size(0) * heads * blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const auto block =
          head.block(task / blocks / heads, task / blocks % heads, task % blocks * step);
      forward_block(head, block, out, logsumexp);
    }
  });
}

void backward(
    const at::Tensor& grad_query,
    const at::Tensor& grad_key,
    const at::Tensor& grad_value,
    const at::Tensor& grad_out,
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const at::Tensor& logsumexp,
    const at::Tensor& mask,
    const Options& options) {
  const Head head(query, key, value, mask, options);
  const auto step = head.rows_per_block();
  const auto key_heads = key.size(1);
  // One thread has all query heads of a key head: sums have one order.
  at::parallel_for(0, key.size(0) * key_heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const auto batch = task / key_heads;
      const auto key_head = task % key_heads;
      const auto key_sum = at::zeros({key.size(2), key.size(3)}, head.options());
      const auto value_sum = at::zeros({value.size(2), value.size(3)}, head.options());
      for (int64_t h = key_head * head.groups(); h < (key_head + 1) * head.groups(); ++h) {
        for (int64_t first = 0; first < head.rows(); first += step) {
          backward_block(
              head,
              head.block(batch, h, first),
              grad_query,
              key_sum,
              value_sum,
              grad_out,
              logsumexp,
              options.scale);
        }
      }
      grad_key[batch][key_head].copy_(key_sum);
      grad_value[batch][key_head].copy_(value_sum);
    }
  });
}

} // namespace accel::attention
