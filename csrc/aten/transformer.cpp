// The fast path of nn.MultiheadAttention and nn.TransformerEncoder. On dense tensors torch's CPU
// kernels only call other operators, so they run as they are. On nested tensors, whose sizes lie
// on the host, each is one launch.
#include <ATen/NestedTensorImpl.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_native_multi_head_attention_native.h>
#include <ATen/ops/_nested_from_padded.h>
#include <ATen/ops/_transformer_encoder_layer_fwd.h>
#include <ATen/ops/_transformer_encoder_layer_fwd_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <vector>

#include "../runtime/stream.h"
#include "structured.h"

namespace accel {

namespace {

using at::Tensor;
using at::native::get_nested_tensor_impl;
using at::native::NestedTensorImpl;
using OptionalTensor = std::optional<Tensor>;

Tensor nested(const Tensor& buffer, const Tensor& sizes) {
  return at::detail::make_tensor<NestedTensorImpl>(buffer, sizes);
}

void copy_buffer(const Tensor& to, const Tensor& nested) {
  to.copy_(get_nested_tensor_impl(nested)->get_buffer());
}

Tensor encoder_layer_nested(
    const Tensor& src,
    int64_t embed_dim,
    int64_t num_heads,
    const Tensor& qkv_weight,
    const Tensor& qkv_bias,
    const Tensor& proj_weight,
    const Tensor& proj_bias,
    bool use_gelu,
    bool norm_first,
    double eps,
    const Tensor& norm_weight_1,
    const Tensor& norm_bias_1,
    const Tensor& norm_weight_2,
    const Tensor& norm_bias_2,
    const Tensor& ffn_weight_1,
    const Tensor& ffn_bias_1,
    const Tensor& ffn_weight_2,
    const Tensor& ffn_bias_2,
    const OptionalTensor& mask,
    std::optional<int64_t> mask_type) {
  const auto input = src.contiguous();
  const auto sizes = get_nested_tensor_impl(input)->get_nested_sizes();
  const auto buffer = get_nested_tensor_impl(input)->get_buffer();
  const auto out = at::empty(buffer.sizes(), buffer.options());
  launch(
      "_transformer_encoder_layer_fwd",
      current_stream(src.device().index()),
      {writes(out),
       reads(buffer),
       reads(sizes),
       reads(qkv_weight),
       reads(qkv_bias),
       reads(proj_weight),
       reads(proj_bias),
       reads(norm_weight_1),
       reads(norm_bias_1),
       reads(norm_weight_2),
       reads(norm_bias_2),
       reads(ffn_weight_1),
       reads(ffn_bias_1),
       reads(ffn_weight_2),
       reads(ffn_bias_2),
       reads(or_undefined(mask))},
      [=](at::TensorList t) {
        copy_buffer(
            t[0],
            at::_transformer_encoder_layer_fwd(
                nested(t[1], t[2]),
                embed_dim,
                num_heads,
                t[3],
                t[4],
                t[5],
                t[6],
                use_gelu,
                norm_first,
                eps,
                t[7],
                t[8],
                t[9],
                t[10],
                t[11],
                t[12],
                t[13],
                t[14],
                or_none(t[15]),
                mask_type));
      });
  return nested(out, sizes.clone());
}

// (B, T, 3 * D) and its bias as queries, scaled, keys and values of (B, heads, T, D / heads).
std::tuple<Tensor, Tensor, Tensor>
split_heads(const Tensor& qkv, const Tensor& bias, int64_t num_heads) {
  constexpr const char* kName = "transform_bias_rescale_qkv";
  const auto dtype = qkv.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(
      at::isFloatingType(dtype) && !at::isFloat8Type(dtype),
      '"',
      kName,
      "\" not implemented for '",
      dtype,
      "'");
  check_common_device(kName, std::nullopt, "qkv", qkv, "qkv_bias", bias);
  TORCH_CHECK(
      qkv.dim() == 3 && num_heads > 0 && qkv.size(2) % (3 * num_heads) == 0 &&
          bias.numel() == qkv.size(2) && bias.scalar_type() == dtype,
      "accel: _",
      kName,
      " expects (batch, length, 3 * heads * features) and a bias of the last size and the same "
      "dtype, but got ",
      qkv.sizes(),
      ", ",
      bias.sizes(),
      " and ",
      num_heads,
      " heads");
  const auto batch = qkv.size(0), length = qkv.size(1), features = qkv.size(2) / 3;
  const auto out = at::empty({3 * batch, num_heads, length, features / num_heads}, qkv.options());
  const auto from = qkv.contiguous(), added = bias.contiguous();
  launch(
      "_transform_bias_rescale_qkv",
      current_stream(qkv.device().index()),
      {writes(out), reads(from), reads(added)},
      [=](at::TensorList t) {
        at::native::transform_bias_rescale_qkv_stub(
            at::kCPU,
            dtype,
            t[0].mutable_data_ptr(),
            t[1].const_data_ptr(),
            t[2].const_data_ptr(),
            batch,
            length,
            features,
            num_heads);
      });
  return {out.narrow(0, 0, batch), out.narrow(0, batch, batch), out.narrow(0, 2 * batch, batch)};
}

// Whether the sizes of the parts lie within the padded tensor that they are cut from.
bool within(const Tensor& padded, const Tensor& sizes, bool fuse_transform_0213) {
  if (sizes.dim() != 2 || sizes.scalar_type() != at::kLong || sizes.size(0) != padded.size(0) ||
      padded.dim() != sizes.size(1) + (fuse_transform_0213 ? 2 : 1)) {
    return false;
  }
  at::DimVector limits(padded.sizes().slice(1));
  if (fuse_transform_0213) { // (B, H, T, E) is taken for (B, T, H * E)
    if (padded.dim() != 4) {
      return false;
    }
    limits = {padded.size(2), padded.size(1) * padded.size(3)};
  }
  const auto rows = sizes.accessor<int64_t, 2>();
  for (int64_t i = 0; i < sizes.size(0); ++i) {
    for (int64_t j = 0; j < sizes.size(1); ++j) {
      if (rows[i][j] < 0 || rows[i][j] > limits[static_cast<size_t>(j)]) {
        return false;
      }
    }
  }
  return true;
}

Tensor from_padded(const Tensor& padded, const Tensor& sizes, bool fuse_transform_0213) {
  TORCH_CHECK(
      sizes.is_cpu(),
      "accel: _nested_from_padded expects cpu_nested_shape_example to be on the CPU, but got one "
      "on ",
      sizes.device());
  if (!within(padded, sizes, fuse_transform_0213)) {
    // Raises what is wrong.
    return at::_nested_from_padded(padded.cpu(), sizes, fuse_transform_0213).to(padded.device());
  }
  const auto elements = sizes.prod(1).sum().item<int64_t>();
  const auto buffer = at::empty({elements}, padded.options());
  launch(
      "_nested_from_padded",
      current_stream(padded.device().index()),
      {writes(buffer), reads(padded), reads(sizes)},
      [fuse_transform_0213](at::TensorList t) {
        copy_buffer(t[0], at::_nested_from_padded(t[1], t[2], fuse_transform_0213));
      });
  return nested(buffer, sizes.clone());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_native_multi_head_attention", TORCH_FN(at::native::native_multi_head_attention_cpu));
  m.impl("_transform_bias_rescale_qkv", TORCH_FN(split_heads));
  m.impl("_transformer_encoder_layer_fwd", TORCH_FN(at::native::transformer_encoder_layer_forward));
  m.impl("_nested_from_padded", TORCH_FN(from_padded));
}

TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  m.impl("_transformer_encoder_layer_fwd", TORCH_FN(encoder_layer_nested));
}

} // namespace

} // namespace accel
