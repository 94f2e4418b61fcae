// multinomial: indices drawn by given weights, queued. Weights are looked at on the worker only, so
// that bad ones raise at the next synchronisation, as on CUDA.
//
// With replacement, sample j of row r is the first index whose cumulative weight exceeds
// uniform(r * n + j) times the sum. Without, the row's samples are the n smallest of
// exponential(r * C + i) / weight(i), in that order (Efraimidis and Spirakis, 2006).
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/multinomial.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
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

void check_arguments(const Tensor& weights, int64_t samples, bool replacement) {
  constexpr int64_t kMaxCategories = 1 << 24; // consecutive integers of float32
  TORCH_CHECK(weights.dim() > 0 && weights.dim() <= 2, "prob_dist must be 1 or 2 dim");
  TORCH_CHECK(
      at::isFloatingType(weights.scalar_type()),
      "multinomial only supports floating-point dtypes for input, got: ",
      weights.scalar_type());
  TORCH_CHECK(samples > 0, "cannot sample n_sample <= 0 samples");
  TORCH_CHECK(
      replacement || samples <= weights.size(-1),
      "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  TORCH_CHECK(weights.size(-1) <= kMaxCategories, "number of categories cannot exceed 2^24");
}

// Returns the sum of a row of weights.
double check_weights(const double* row, int64_t categories) {
  double sum = 0;
  for (int64_t i = 0; i < categories; ++i) {
    TORCH_CHECK(
        row[i] >= 0 && std::isfinite(row[i]),
        "probability tensor contains either `inf`, `nan` or element < 0");
    sum += row[i];
  }
  TORCH_CHECK(sum > 0, "invalid multinomial distribution (sum of probabilities <= 0)");
  return sum;
}

void draw_with_replacement(const Tensor& out, const Tensor& weights, Key key) {
  const auto samples = out.size(1);
  const auto categories = weights.size(1);
  std::vector<float> uniform(static_cast<size_t>(samples));
  std::vector<double> sums(static_cast<size_t>(categories));
  for (int64_t r = 0; r < out.size(0); ++r) {
    const double* const row = weights.const_data_ptr<double>() + r * categories;
    int64_t* const result = out.mutable_data_ptr<int64_t>() + r * samples;
    const double sum = check_weights(row, categories);
    std::partial_sum(row, row + categories, sums.begin());
    random::uniforms(uniform.data(), key, static_cast<uint64_t>(r * samples), samples);
    for (int64_t j = 0; j < samples; ++j) {
      const double target = static_cast<double>(uniform[static_cast<size_t>(j)]) * sum;
      const auto found = std::upper_bound(sums.begin(), sums.end(), target);
      auto index = std::min<int64_t>(found - sums.begin(), categories - 1);
      while (row[index] == 0) { // only if rounding went beyond the last category with a weight
        --index;
      }
      result[j] = index;
    }
  }
}

void draw_without_replacement(const Tensor& out, const Tensor& weights, Key key) {
  const auto samples = out.size(1);
  const auto categories = weights.size(1);
  const auto exponential = at::empty(weights.sizes(), at::kFloat);
  random::exponential(exponential, key, 1.0);
  std::vector<double> keys(static_cast<size_t>(categories));
  std::vector<int64_t> order(static_cast<size_t>(categories));
  for (int64_t r = 0; r < out.size(0); ++r) {
    const double* const row = weights.const_data_ptr<double>() + r * categories;
    const float* const draws = exponential.const_data_ptr<float>() + r * categories;
    check_weights(row, categories);
    TORCH_CHECK(
        std::count_if(row, row + categories, [](double w) { return w > 0; }) >= samples,
        "invalid multinomial distribution (with replacement=False, not enough non-negative "
        "category to sample)");
    for (int64_t i = 0; i < categories; ++i) {
      keys[static_cast<size_t>(i)] = row[i] > 0 ? static_cast<double>(draws[i]) / row[i]
                                                : std::numeric_limits<double>::infinity();
    }
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(
        order.begin(), order.begin() + samples, order.end(), [&](int64_t a, int64_t b) {
          const double x = keys[static_cast<size_t>(a)];
          const double y = keys[static_cast<size_t>(b)];
          return x < y || (x == y && a < b);
        });
    std::copy_n(order.begin(), samples, out.mutable_data_ptr<int64_t>() + r * samples);
  }
}

// On the CPU's numbers: its kernel, which waits.
Tensor draw_from_cpu(
    const Tensor& weights,
    int64_t samples,
    bool replacement,
    const OptionalGenerator& generator) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::multinomial", "");
  torch::jit::Stack stack{weights, samples, replacement, generator};
  run_on_cpu(op, c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  return stack[0].toTensor();
}

void draw(const Tensor& out, const Tensor& weights, bool replacement, GeneratorImpl* generator) {
  const CallKey key = reserve_key(generator);
  launch(
      "multinomial",
      current_stream(weights.device().index()),
      {writes(out), reads(weights)},
      [key, replacement](at::TensorList t) {
        const auto rows = t[1].dim() == 1 ? t[1].unsqueeze(0) : t[1];
        const auto weights = rows.to(at::kDouble).contiguous();
        const auto result = at::empty({rows.size(0), t[0].size(-1)}, at::TensorOptions(at::kLong));
        const auto sample = replacement ? draw_with_replacement : draw_without_replacement;
        sample(result, weights, key.resolve());
        t[0].copy_(result.view_as(t[0]));
      });
}

Tensor& multinomial_out(
    const Tensor& self,
    int64_t samples,
    bool replacement,
    OptionalGenerator generator,
    Tensor& out) {
  TORCH_CHECK(out.device() == self.device(), "multinomial arguments must have the same device");
  TORCH_CHECK(
      out.scalar_type() == at::kLong,
      "multinomial expects Long tensor out, got: ",
      out.scalar_type());
  check_arguments(self, samples, replacement);
  at::DimVector sizes(self.sizes());
  sizes.back() = samples;
  out.resize_(sizes); // without a warning, as on the CPU
  if (out.numel() == 0) {
    return out;
  }
  auto* const impl = generator_or_default(generator, self.device());
  if (impl->cpu()) {
    return out.copy_(draw_from_cpu(self, samples, replacement, generator));
  }
  draw(out, self, replacement, impl);
  return out;
}

Tensor
multinomial(const Tensor& self, int64_t samples, bool replacement, OptionalGenerator generator) {
  auto out = at::empty({0}, self.options().dtype(at::kLong));
  return multinomial_out(self, samples, replacement, std::move(generator), out);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("multinomial", TORCH_FN(multinomial));
  m.impl("multinomial.out", TORCH_FN(multinomial_out));
}

} // namespace

} // namespace accel
