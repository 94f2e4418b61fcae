// Attention with dropout or a window, which the CPU has in quadratic memory only: row blocks of the
// scores are made, used and forgotten, and the backward makes them again from (key, element).
#pragma once

#include <ATen/core/Tensor.h>

#include "../runtime/generator.h"

namespace accel::attention {

// The columns that a row sees: so many to the left and to the right of the diagonal, and the
// diagonal. The diagonal begins in the upper left corner of the scores, or ends in the lower right.
struct Window {
  static constexpr int64_t kAll = -1;
  int64_t left = kAll;
  int64_t right = kAll;
  bool lower_right = false;

  static Window causal(bool causal) {
    return {kAll, causal ? 0 : kAll, false};
  }
};

struct Options {
  double scale;
  double dropout; // in [0, 1]
  Window window;
  CallKey key{0};
  uint64_t first_draw = 0;
};

// Shapes: query and out (B, H, L, E), key and value (B, H / groups, S, E), logsumexp (B, H, L),
// mask (undefined, or broadcast to (B, H, L, S); true or 0: takes part). A row that sees nothing is
// 0. Element (b, h, i, j) of the weights is dropped by draw first_draw + ((b * H + h) * L + i) * S
// + j.
void forward(
    const at::Tensor& out,
    const at::Tensor& logsumexp,
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const at::Tensor& mask,
    const Options& options);

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
    const Options& options);

} // namespace accel::attention
