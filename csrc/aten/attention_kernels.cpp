#include "attention_kernels.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <vector>

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

// The block of rows [first, first + rows) of one head.
struct Block {
  int64_t batch;
  int64_t head;
  int64_t first;
  int64_t rows;
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
  int64_t columns() const {
    return key_.size(2);
  }
  at::Tensor query(const Block& block) const {
    return rows_of(query_, block);
  }
  at::Tensor rows_of(const at::Tensor& tensor, const Block& block) const {
    return tensor[block.batch][block.head].narrow(0, block.first, block.rows).to(type_);
  }
  at::Tensor key(const Block& block) const {
    return key_[block.batch][block.head / groups_].to(type_);
  }
  at::Tensor value(const Block& block) const {
    return value_[block.batch][block.head / groups_].to(type_);
  }

  // Scaled and masked scores of a block.
  template <class T>
  at::Tensor scores(const Block& block) const {
    auto result = at::mm(query(block), key(block).t());
    T* const data = result.mutable_data_ptr<T>();
    const auto scale = static_cast<T>(options_.scale);
    at::Tensor mask;
    if (mask_.defined()) {
      mask = mask_[block.batch][block.head].narrow(0, block.first, block.rows);
      mask = mask.scalar_type() == at::kBool ? mask.contiguous() : mask.to(type_).contiguous();
    }
    constexpr T kMasked = -std::numeric_limits<T>::infinity();
    for (int64_t i = 0; i < block.rows; ++i) {
      T* const row = data + i * columns();
      for (int64_t j = 0; j < columns(); ++j) {
        row[j] *= scale;
      }
      if (mask.defined() && mask.scalar_type() == at::kBool) {
        const bool* const keep = mask.const_data_ptr<bool>() + i * columns();
        for (int64_t j = 0; j < columns(); ++j) {
          row[j] = keep[j] ? row[j] : kMasked;
        }
      } else if (mask.defined()) {
        const T* const bias = mask.const_data_ptr<T>() + i * columns();
        for (int64_t j = 0; j < columns(); ++j) {
          row[j] += bias[j];
        }
      }
      const auto [begin, end] = visible(options_.window, block.first + i, rows(), columns());
      std::fill(row, row + begin, kMasked);
      std::fill(row + end, row + columns(), kMasked);
    }
    return result;
  }

  // 0 where a weight is dropped, 1 / (1 - p) where it is kept; undefined if all are kept.
  template <class T>
  at::Tensor factors(const Block& block) const {
    if (options_.dropout == 0.0) {
      return {};
    }
    auto result = at::empty({block.rows, columns()}, at::TensorOptions(type_));
    T* const data = result.mutable_data_ptr<T>();
    const auto first =
        ((block.batch * query_.size(1) + block.head) * rows() + block.first) * columns();
    std::vector<float> uniform(static_cast<size_t>(result.numel()));
    random::uniforms(
        uniform.data(),
        options_.key,
        options_.first_draw + static_cast<uint64_t>(first),
        result.numel());
    const auto bound = static_cast<float>(1.0 - options_.dropout);
    const auto kept = static_cast<T>(1.0 / (1.0 - options_.dropout));
    for (int64_t i = 0; i < result.numel(); ++i) {
      data[i] = uniform[static_cast<size_t>(i)] < bound ? kept : T(0);
    }
    return result;
  }

  at::ScalarType type() const {
    return type_;
  }
  int64_t groups() const {
    return groups_;
  }

 private:
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
template <class T>
void softmax(const at::Tensor& scores, const at::Tensor& logsumexp) {
  T* const data = scores.mutable_data_ptr<T>();
  const auto columns = scores.size(1);
  for (int64_t i = 0; i < scores.size(0); ++i) {
    T* const row = data + i * columns;
    T largest = -std::numeric_limits<T>::infinity();
    for (int64_t j = 0; j < columns; ++j) {
      largest = std::max(largest, row[j]);
    }
    if (largest == -std::numeric_limits<T>::infinity()) {
      std::fill(row, row + columns, T(0));
      logsumexp[i].fill_(0);
      continue;
    }
    T sum = 0;
    for (int64_t j = 0; j < columns; ++j) {
      row[j] = std::exp(row[j] - largest);
      sum += row[j];
    }
    for (int64_t j = 0; j < columns; ++j) {
      row[j] /= sum;
    }
    logsumexp[i].fill_(largest + std::log(sum));
  }
}

template <class T>
void forward_block(
    const Head& head,
    const Block& block,
    const at::Tensor& out,
    const at::Tensor& logsumexp) {
  const auto weights = head.scores<T>(block);
  softmax<T>(weights, logsumexp[block.batch][block.head].narrow(0, block.first, block.rows));
  out[block.batch][block.head]
      .narrow(0, block.first, block.rows)
      .copy_(at::mm(times(weights, head.factors<T>(block)), head.value(block)));
}

template <class T>
void backward_block(
    const Head& head,
    const Block& block,
    const at::Tensor& grad_query,
    const at::Tensor& grad_key, // of this head, accumulated
    const at::Tensor& grad_value,
    const at::Tensor& grad_out,
    const at::Tensor& logsumexp,
    double scale) {
  const auto weights = head.scores<T>(block);
  const auto sums =
      logsumexp[block.batch][block.head].narrow(0, block.first, block.rows).unsqueeze(1);
  weights.sub_(sums).exp_();
  const auto factors = head.factors<T>(block);
  const auto grad = head.rows_of(grad_out, block);
  grad_value.addmm_(times(weights, factors).t(), grad);
  const auto grad_weights = times(at::mm(grad, head.value(block).t()), factors);
  const auto mean = grad_weights.mul(weights).sum(1, /*keepdim=*/true);
  const auto grad_scores = grad_weights.sub_(mean).mul_(weights).mul_(scale);
  grad_query[block.batch][block.head]
      .narrow(0, block.first, block.rows)
      .copy_(at::mm(grad_scores, head.key(block)));
  grad_key.addmm_(grad_scores.t(), head.query(block));
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
      const auto first = task % blocks * step;
      const Block block{
          task / blocks / heads, task / blocks % heads, first, std::min(step, head.rows() - first)};
      AT_DISPATCH_FLOATING_TYPES(head.type(), "attention_accel", [&] {
        forward_block<scalar_t>(head, block, out, logsumexp);
      });
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
      const at::TensorOptions type(head.type());
      const auto key_sum = at::zeros({key.size(2), key.size(3)}, type);
      const auto value_sum = at::zeros({value.size(2), value.size(3)}, type);
      for (int64_t h = key_head * head.groups(); h < (key_head + 1) * head.groups(); ++h) {
        for (int64_t first = 0; first < head.rows(); first += step) {
          const Block block{batch, h, first, std::min(step, head.rows() - first)};
          AT_DISPATCH_FLOATING_TYPES(head.type(), "attention_backward_accel", [&] {
            backward_block<scalar_t>(
                head, block, grad_query, key_sum, value_sum, grad_out, logsumexp, options.scale);
          });
        }
      }
      grad_key[batch][key_head].copy_(key_sum);
      grad_value[batch][key_head].copy_(value_sum);
    }
  });
}

} // namespace accel::attention
