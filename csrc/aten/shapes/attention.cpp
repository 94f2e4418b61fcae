// The CPU's flash attention and its gradient.
#include "../shapes.h"

namespace accel {

namespace {

bool fits(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  return query.dim() == 4 && key.dim() == 4 && value.dim() == 4 &&
      query.scalar_type() == key.scalar_type() && query.scalar_type() == value.scalar_type() &&
      query.size(0) == key.size(0) && key.sizes() == value.sizes() &&
      query.size(3) == key.size(3) && key.size(1) > 0 && query.size(1) % key.size(1) == 0;
}

Outputs
forward(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double dropout) {
  if (!fits(query, key, value) || dropout != 0.0) {
    return decline();
  }
  const auto accumulate = query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return outputs(
      make_like(query),
      make({query.size(0), query.size(2), query.size(1)}, accumulate).transpose(1, 2));
}

// (B, H, L, E) in the memory order (B, L, H, E).
at::Tensor heads_inside(const at::Tensor& like) {
  return make({like.size(0), like.size(2), like.size(1), like.size(3)}, like.scalar_type())
      .transpose(1, 2);
}

Outputs backward(
    const at::Tensor& grad_out,
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value) {
  if (!grad_out.defined() || !fits(query, key, value)) {
    return decline();
  }
  return outputs(heads_inside(query), heads_inside(key), heads_inside(value));
}

// Two products of L x S x E a head forward, five backward.
template <int products, size_t first>
int64_t products_of_heads(Arguments arguments, at::TensorList) {
  const auto& query = arguments[first].toTensor();
  const auto& key = arguments[first + 1].toTensor();
  return 2 * products * query.numel() * key.size(2);
}

const ShapeRow kRows[] = {
    {"_scaled_dot_product_flash_attention_for_cpu", shape<forward>, products_of_heads<2, 0>},
    {"_scaled_dot_product_flash_attention_for_cpu_backward",
     shape<backward>,
     products_of_heads<5, 1>},
};

} // namespace

c10::ArrayRef<ShapeRow> attention_rows() {
  return kRows;
}

} // namespace accel
