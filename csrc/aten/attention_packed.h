// Attention over sequences that lie one after the other in one dimension, as in nested tensors of
// jagged layout.
#pragma once

#include <ATen/core/Tensor.h>

#include "attention_kernels.h"

namespace accel::attention {

// Where the sequences lie: sequence i has the rows [offsets[i], offsets[i + 1]), or, where the
// offsets are undefined, all have one length. `used` (undefined: all) says how many of its columns
// take part.
struct Sequences {
  const at::Tensor& query_offsets;
  const at::Tensor& key_offsets;
  const at::Tensor& used;
  int64_t count;
};

// Shapes: query (T, H, E), key (S, H / groups, E), value (S, H / groups, V), out (T, H, V);
// logsumexp (H, T), or (count, H, at least the longest sequence). Rows of no sequence are 0.
// Sequence by sequence the CPU's flash kernel where it serves, else that of attention_kernels.h,
// whose draws continue from one sequence to the next.
void forward_packed(
    const at::Tensor& out,
    const at::Tensor& logsumexp,
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const Sequences& sequences,
    Options options);

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
    Options options);

} // namespace accel::attention
