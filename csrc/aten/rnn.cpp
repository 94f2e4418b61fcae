// The fused cells that torch's LSTM and GRU call on every accelerator; the CPU has no kernels for
// them. Each is one launch of the CPU's elementwise kernels.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh_backward.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <tuple>

#include "../runtime/stream.h"
#include "launch.h"

namespace accel {

namespace {

using OptionalTensor = std::optional<at::Tensor>;

constexpr int64_t kLstmGates = 4; // input, forget, cell, output
constexpr int64_t kGruGates = 3; // reset, update, new

// Throws unless the gates have the shape that a state of [batch, hidden] asks for.
void check_cell(
    const char* name,
    int64_t gates,
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& state,
    const at::Tensor& input_bias,
    const at::Tensor& hidden_bias) {
  TORCH_CHECK(
      state.dim() == 2 && input_gates.sizes() == hidden_gates.sizes() && input_gates.dim() == 2 &&
          input_gates.size(0) == state.size(0) && input_gates.size(1) == gates * state.size(1),
      "accel: ",
      name,
      " expects gates of [batch, ",
      gates,
      " * hidden] and a state of [batch, hidden], but got ",
      input_gates.sizes(),
      ", ",
      hidden_gates.sizes(),
      " and ",
      state.sizes());
  TORCH_CHECK(
      input_bias.defined() == hidden_bias.defined() &&
          (!input_bias.defined() ||
           (input_bias.numel() == gates * state.size(1) &&
            hidden_bias.numel() == input_bias.numel())),
      "accel: ",
      name,
      " expects two biases of ",
      gates * state.size(1),
      " elements, or none");
  for (const auto& tensor : {hidden_gates, state, input_bias, hidden_bias}) {
    TORCH_CHECK(
        !tensor.defined() || tensor.device() == input_gates.device(),
        "accel: ",
        name,
        " expects all tensors to be on ",
        input_gates.device(),
        ", but got one on ",
        tensor.device());
  }
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& cx,
    const OptionalTensor& input_bias,
    const OptionalTensor& hidden_bias) {
  const auto b1 = input_bias.value_or(at::Tensor());
  const auto b2 = hidden_bias.value_or(at::Tensor());
  check_cell("_thnn_fused_lstm_cell", kLstmGates, input_gates, hidden_gates, cx, b1, b2);
  auto hy = at::empty(cx.sizes(), cx.options());
  auto cy = at::empty(cx.sizes(), cx.options());
  auto workspace = at::empty(input_gates.sizes(), input_gates.options()); // the gates, activated
  launch(
      "_thnn_fused_lstm_cell",
      current_stream(cx.device().index()),
      {writes(hy),
       writes(cy),
       writes(workspace),
       reads(input_gates),
       reads(hidden_gates),
       reads(cx),
       reads(b1),
       reads(b2)},
      [](at::TensorList t) {
        auto sum = t[3] + t[4];
        if (t[6].defined()) {
          sum.add_(t[6]).add_(t[7]);
        }
        at::Tensor gates = t[2];
        gates.copy_(sum);
        auto parts = gates.chunk(kLstmGates, 1);
        parts[0].sigmoid_();
        parts[1].sigmoid_();
        parts[2].tanh_();
        parts[3].sigmoid_();
        at::Tensor out = t[1];
        out.copy_((parts[1] * t[5]).add_(parts[0] * parts[2]));
        out = t[0];
        out.copy_(parts[3] * t[1].tanh());
      });
  return {hy, cy, workspace};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(
    const OptionalTensor& grad_hy,
    const OptionalTensor& grad_cy,
    const at::Tensor& cx,
    const at::Tensor& cy,
    const at::Tensor& workspace,
    bool has_bias) {
  const auto ghy = grad_hy.value_or(at::Tensor());
  const auto gcy = grad_cy.value_or(at::Tensor());
  if (!ghy.defined() && !gcy.defined()) {
    return {};
  }
  auto grad_gates = at::empty(workspace.sizes(), workspace.options());
  auto grad_cx = at::empty(cx.sizes(), cx.options());
  launch(
      "_thnn_fused_lstm_cell_backward_impl",
      current_stream(cx.device().index()),
      {writes(grad_gates),
       writes(grad_cx),
       reads(ghy),
       reads(gcy),
       reads(cx),
       reads(cy),
       reads(workspace)},
      [](at::TensorList t) {
        const auto gates = t[6].chunk(kLstmGates, 1);
        const auto tanh_cy = t[5].tanh();
        auto grad_cell = t[3]; // may be undefined
        auto grad_output = at::Tensor();
        if (t[2].defined()) {
          grad_output = at::sigmoid_backward(t[2] * tanh_cy, gates[3]);
          const auto through = at::tanh_backward(t[2] * gates[3], tanh_cy);
          grad_cell = grad_cell.defined() ? grad_cell + through : through;
        }
        auto out = t[0].chunk(kLstmGates, 1);
        out[0].copy_(at::sigmoid_backward(grad_cell * gates[2], gates[0]));
        out[1].copy_(at::sigmoid_backward(grad_cell * t[4], gates[1]));
        out[2].copy_(at::tanh_backward(grad_cell * gates[0], gates[2]));
        if (grad_output.defined()) {
          out[3].copy_(grad_output);
        } else {
          out[3].zero_();
        }
        at::Tensor state = t[1];
        state.copy_(grad_cell * gates[1]);
      });
  return {grad_gates, grad_cx, has_bias ? grad_gates.sum(0, /*keepdim=*/false) : at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor> gru_cell(
    const at::Tensor& input_gates,
    const at::Tensor& hidden_gates,
    const at::Tensor& hx,
    const OptionalTensor& input_bias,
    const OptionalTensor& hidden_bias) {
  const auto b1 = input_bias.value_or(at::Tensor());
  const auto b2 = hidden_bias.value_or(at::Tensor());
  check_cell("_thnn_fused_gru_cell", kGruGates, input_gates, hidden_gates, hx, b1, b2);
  auto hy = at::empty(hx.sizes(), hx.options());
  // reset, update and new gate, the old state, and the hidden part of the new gate
  auto workspace = at::empty({hx.size(0), 5 * hx.size(1)}, hx.options());
  launch(
      "_thnn_fused_gru_cell",
      current_stream(hx.device().index()),
      {writes(hy),
       writes(workspace),
       reads(input_gates),
       reads(hidden_gates),
       reads(hx),
       reads(b1),
       reads(b2)},
      [](at::TensorList t) {
        const auto in = (t[5].defined() ? t[2] + t[5] : t[2]).chunk(kGruGates, 1);
        const auto hidden = (t[6].defined() ? t[3] + t[6] : t[3]).chunk(kGruGates, 1);
        auto saved = t[1].chunk(5, 1);
        saved[0].copy_((in[0] + hidden[0]).sigmoid_());
        saved[1].copy_((in[1] + hidden[1]).sigmoid_());
        saved[2].copy_((in[2] + saved[0] * hidden[2]).tanh_());
        saved[3].copy_(t[4]);
        saved[4].copy_(hidden[2]);
        at::Tensor out = t[0];
        out.copy_((t[4] - saved[2]).mul_(saved[1]).add_(saved[2]));
      });
  return {hy, workspace};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>
gru_cell_backward(const at::Tensor& grad_hy, const at::Tensor& workspace, bool has_bias) {
  const std::array<int64_t, 2> shape{workspace.size(0), workspace.size(1) / 5 * kGruGates};
  auto grad_input = at::empty(shape, workspace.options());
  auto grad_hidden = at::empty(shape, workspace.options());
  auto grad_hx = at::empty(grad_hy.sizes(), grad_hy.options());
  launch(
      "_thnn_fused_gru_cell_backward",
      current_stream(grad_hy.device().index()),
      {writes(grad_input), writes(grad_hidden), writes(grad_hx), reads(grad_hy), reads(workspace)},
      [](at::TensorList t) {
        const auto saved = t[4].chunk(5, 1);
        const auto& reset = saved[0];
        const auto& update = saved[1];
        const auto& fresh = saved[2];
        const auto grad_new = at::tanh_backward(t[3] * (1 - update), fresh);
        const auto grad_update = at::sigmoid_backward(t[3] * (saved[3] - fresh), update);
        const auto grad_reset = at::sigmoid_backward(grad_new * saved[4], reset);
        auto input = t[0].chunk(kGruGates, 1);
        input[0].copy_(grad_reset);
        input[1].copy_(grad_update);
        input[2].copy_(grad_new);
        auto hidden = t[1].chunk(kGruGates, 1);
        hidden[0].copy_(grad_reset);
        hidden[1].copy_(grad_update);
        hidden[2].copy_(grad_new * reset);
        at::Tensor state = t[2];
        state.copy_(t[3] * update);
      });
  if (!has_bias) {
    return {grad_input, grad_hidden, grad_hx, at::Tensor(), at::Tensor()};
  }
  return {
      grad_input,
      grad_hidden,
      grad_hx,
      grad_input.sum(0, /*keepdim=*/false),
      grad_hidden.sum(0, /*keepdim=*/false)};
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  m.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  m.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  m.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}

} // namespace accel
