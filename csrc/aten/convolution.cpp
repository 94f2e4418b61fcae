// Every convolution of torch ends here for PrivateUse1. The CPU's own choice of algorithm runs, so
// that results are the CPU's bit for bit.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/ConvUtils.h>
#include <torch/library.h>

#include <array>

#include "alias.h"
#include "queued_operator.h"

namespace accel {

namespace {

// A value for each spatial dimension, from one or all of them.
std::optional<at::DimVector> expanded(at::IntArrayRef values, size_t spatial, int64_t least) {
  if (values.size() != 1 && values.size() != spatial) {
    return std::nullopt;
  }
  at::DimVector result;
  for (size_t i = 0; i < spatial; ++i) {
    result.push_back(values[values.size() == 1 ? 0 : i]);
  }
  const bool valid =
      std::all_of(result.begin(), result.end(), [least](int64_t value) { return value >= least; });
  return valid ? std::optional(result) : std::nullopt;
}

struct Convolution {
  const at::Tensor& input;
  const at::Tensor& weight;
  at::DimVector stride;
  at::DimVector padding;
  at::DimVector dilation;
  at::DimVector output_padding;
  bool transposed;
  int64_t groups;

  int64_t output_channels() const {
    return transposed ? weight.size(1) * groups : weight.size(0);
  }

  at::DimVector output_sizes() const {
    return at::DimVector(
        transposed
            ? at::native::conv_input_size(
                  input.sizes(), weight.sizes(), padding, output_padding, stride, dilation, groups)
            : at::native::conv_output_size(
                  input.sizes(), weight.sizes(), padding, stride, dilation));
  }

  // Of the tensors that the CPU's algorithm for these operands makes.
  at::MemoryFormat format() const {
    const bool volume = input.dim() == 5;
    const auto last = volume ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast;
    if (input.dim() == 3 || input.numel() == 0 ||
        (input.suggest_memory_format() != last && weight.suggest_memory_format() != last)) {
      return at::MemoryFormat::Contiguous;
    }
    return !volume || is_mkldnn() ? last : at::MemoryFormat::Contiguous;
  }

  // torch chooses by the tensors' device: it is asked about CPU tensors of the same geometry.
  bool is_mkldnn() const {
    const auto shell = [](const at::Tensor& tensor) {
      return tensor_on(
          alias_storage(nullptr, 0, /*resizable=*/false),
          c10::DispatchKey::CPU,
          geometry_of(tensor));
    };
    const auto backend = at::native::select_conv_backend(
        shell(input),
        shell(weight),
        std::nullopt,
        c10::fromIntArrayRefSlow(stride),
        c10::fromIntArrayRefSlow(padding),
        c10::fromIntArrayRefSlow(dilation),
        transposed,
        c10::fromIntArrayRefSlow(output_padding),
        groups,
        std::nullopt);
    return backend == at::native::ConvBackend::Mkldnn ||
        backend == at::native::ConvBackend::MkldnnTranspose;
  }
};

// None for calls that are not plain, and those that torch refuses.
std::optional<Convolution> plain_convolution(
    const at::Tensor& input,
    const at::Tensor& weight,
    at::IntArrayRef stride,
    at::IntArrayRef padding,
    at::IntArrayRef dilation,
    bool transposed,
    at::IntArrayRef output_padding,
    int64_t groups) {
  const auto rank = input.dim();
  if (rank < 3 || rank > 5 || weight.dim() != rank || groups <= 0 || weight.numel() == 0 ||
      input.size(1) == 0 || weight.scalar_type() != input.scalar_type() || input.is_complex() ||
      weight.size(0) % groups != 0 ||
      input.size(1) != (transposed ? weight.size(0) : weight.size(1) * groups)) {
    return std::nullopt;
  }
  const size_t spatial = rank - 2;
  auto s = expanded(stride, spatial, 1);
  auto p = expanded(padding, spatial, 0);
  auto d = expanded(dilation, spatial, 1);
  auto o = expanded(output_padding, spatial, 0);
  if (!s || !p || !d || !o) {
    return std::nullopt;
  }
  for (size_t i = 0; i < spatial; ++i) {
    if (transposed && (*o)[i] >= std::max((*s)[i], (*d)[i])) {
      return std::nullopt;
    }
  }
  Convolution result{input, weight, *s, *p, *d, *o, transposed, groups};
  const auto sizes = result.output_sizes();
  const auto positive = [](int64_t size) { return size > 0; };
  if (!std::all_of(sizes.begin() + 1, sizes.end(), positive) ||
      !std::all_of(input.sizes().begin() + 1, input.sizes().end(), positive)) {
    return std::nullopt;
  }
  return result;
}

Outputs forward(
    const at::Tensor& input,
    const at::Tensor& weight,
    const at::Tensor& bias,
    at::IntArrayRef stride,
    at::IntArrayRef padding,
    at::IntArrayRef dilation,
    bool transposed,
    at::IntArrayRef output_padding,
    int64_t groups) {
  const auto call = plain_convolution(
      input, weight, stride, padding, dilation, transposed, output_padding, groups);
  if (!call ||
      (bias.defined() &&
       (bias.dim() != 1 || bias.size(0) != call->output_channels() ||
        bias.scalar_type() != input.scalar_type()))) {
    return decline();
  }
  return outputs(make(call->output_sizes(), input.scalar_type(), call->format()));
}

Outputs backward(
    const at::Tensor& grad,
    const at::Tensor& input,
    const at::Tensor& weight,
    at::OptionalIntArrayRef bias_sizes,
    at::IntArrayRef stride,
    at::IntArrayRef padding,
    at::IntArrayRef dilation,
    bool transposed,
    at::IntArrayRef output_padding,
    int64_t groups,
    std::array<bool, 3> mask) {
  const auto call = plain_convolution(
      input, weight, stride, padding, dilation, transposed, output_padding, groups);
  if (!call || grad.sizes() != call->output_sizes() || grad.scalar_type() != input.scalar_type() ||
      (mask[2] && !bias_sizes)) {
    return decline();
  }
  const auto dtype = input.scalar_type();
  const auto format = call->format();
  const bool empty = input.numel() == 0;
  const bool mkldnn = !empty && call->is_mkldnn();
  const auto grad_weight = [&] {
    // Where one channel makes the format ambiguous, all algorithms but oneDNN's keep the strides.
    const bool kept = empty ||
        (!mkldnn && format != at::MemoryFormat::Contiguous && weight.is_contiguous(format));
    return kept ? make_like(weight) : make(weight.sizes(), dtype, format);
  };
  const bool with_bias = mkldnn && mask[2]; // oneDNN computes both at once
  return outputs(
      !mask[0]    ? at::Tensor()
          : empty ? make_like(input)
                  : make(input.sizes(), dtype, format),
      mask[1] || with_bias ? grad_weight() : at::Tensor(),
      mask[2] ? make(*bias_sizes, dtype) : at::Tensor());
}

// A multiplication and an addition for each element of the larger side, its filter's elements.
int64_t multiply_add(
    const at::Tensor& output,
    const at::Tensor& input,
    const at::Tensor& weight,
    bool transposed) {
  const auto& side = transposed ? input : output;
  return 2 * side.numel() * (weight.numel() / weight.size(0));
}

int64_t forward_flops(Arguments arguments, at::TensorList outputs) {
  return multiply_add(
      outputs[0], arguments[0].toTensor(), arguments[1].toTensor(), arguments[6].toBool());
}

int64_t backward_flops(Arguments arguments, at::TensorList outputs) {
  const auto& grad = arguments[0].toTensor();
  const auto one =
      multiply_add(grad, arguments[1].toTensor(), arguments[2].toTensor(), arguments[7].toBool());
  return one * (outputs[0].defined() + outputs[1].defined()) +
      (outputs[2].defined() ? grad.numel() : 0);
}

// The operator that computes what `name` asks for: torch's own, on the CPU.
const QueuedOperator* queued(const char* name, ShapeFunction shape, FlopsFunction flops) {
  const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow((std::string("aten::") + name).c_str(), "");
  // Leaked: records refer to it.
  return new QueuedOperator(op, {name, shape, flops}, /*decomposes=*/false);
}

// convolution_overrideable has the arguments of convolution.
void convolution(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) {
  static const auto* const op = queued("convolution", shape<forward>, forward_flops);
  op->call(stack);
}

// convolution_backward has one argument more, bias_sizes after weight.
void convolution_backward(
    const c10::OperatorHandle& self,
    c10::DispatchKeySet,
    torch::jit::Stack* stack) {
  static const auto* const op = queued("convolution_backward", shape<backward>, backward_flops);
  enum { kGradOutput, kInput, kWeight, kStride, kTransposed = 6, kGroups = 8, kOutputMask = 9 };
  const auto begin = stack->end() - static_cast<ptrdiff_t>(self.schema().arguments().size());
  const auto& weight = begin[kWeight].toTensor();
  c10::IValue bias_sizes;
  if (begin[kOutputMask].toBoolList().get(2)) {
    const bool transposed = begin[kTransposed].toBool();
    const int64_t outputs = transposed ? weight.size(1) * begin[kGroups].toInt() : weight.size(0);
    bias_sizes = std::vector<int64_t>{outputs};
  }
  stack->insert(begin + kStride, std::move(bias_sizes));
  op->call(stack);
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", torch::CppFunction::makeFromBoxedFunction<&convolution>());
  m.impl(
      "convolution_backward_overrideable",
      torch::CppFunction::makeFromBoxedFunction<&convolution_backward>());
}

} // namespace accel
