// Pooling, unpooling, sampling and padding, and their gradients.
#include <ATen/Context.h>
#include <ATen/native/GridSamplerUtils.h>
#include <ATen/native/Padding.h>
#include <ATen/native/PixelShuffle.h>
#include <ATen/native/Pool.h>

#include <array>

#include "../shapes.h"

namespace accel {

namespace {

using at::MemoryFormat;

// The last sizes replaced.
at::DimVector with_last(const at::Tensor& self, at::IntArrayRef last) {
  at::DimVector sizes(self.sizes());
  std::copy(last.begin(), last.end(), sizes.end() - last.size());
  return sizes;
}

// Batches in the input's memory format, single samples contiguous.
at::Tensor make_as(const at::Tensor& self, at::IntArrayRef sizes, int64_t batched) {
  return make(
      sizes,
      self.scalar_type(),
      self.dim() == batched ? self.suggest_memory_format() : MemoryFormat::Contiguous);
}

// A batch or a sample of `spatial` dimensions, no size but the batch's zero.
bool is_image(const at::Tensor& self, int64_t spatial) {
  if (self.dim() != spatial + 1 && self.dim() != spatial + 2) {
    return false;
  }
  const auto sizes = self.sizes().slice(self.dim() - spatial - 1);
  return std::find(sizes.begin(), sizes.end(), 0) == sizes.end();
}

// These kernels know a memory format for images, but none for volumes.
template <int spatial>
at::Tensor pooled(const at::Tensor& self, at::IntArrayRef sizes) {
  return spatial == 2 ? make_as(self, sizes, 4) : make(sizes, self.scalar_type());
}

bool all_positive(at::IntArrayRef values) {
  return std::all_of(values.begin(), values.end(), [](int64_t value) { return value > 0; });
}

bool same_dtype(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type();
}

// ---- Adaptive average pooling

template <int spatial>
Outputs adaptive_avg_pool(const at::Tensor& self, at::IntArrayRef output_size) {
  if (!is_image(self, spatial) || output_size.size() != spatial ||
      std::any_of(output_size.begin(), output_size.end(), [](int64_t n) { return n < 0; })) {
    return decline();
  }
  return outputs(pooled<spatial>(self, with_last(self, output_size)));
}

template <int spatial>
Outputs adaptive_avg_pool_backward(const at::Tensor& grad, const at::Tensor& self) {
  if (!is_image(self, spatial) || !is_image(grad, spatial) || grad.dim() != self.dim() ||
      !same_dtype(grad, self) ||
      grad.sizes().slice(0, grad.dim() - spatial) != self.sizes().slice(0, self.dim() - spatial)) {
    return decline();
  }
  return outputs(pooled<spatial>(self, self.sizes()));
}

// ---- Max pooling and unpooling

// A value for each dimension, from one, all or (where allowed) none.
std::optional<std::array<int64_t, 3>> triple(at::IntArrayRef values, at::IntArrayRef otherwise) {
  const auto chosen = values.empty() ? otherwise : values;
  if (chosen.size() == 1) {
    return {{chosen[0], chosen[0], chosen[0]}};
  }
  if (chosen.size() == 3) {
    return {{chosen[0], chosen[1], chosen[2]}};
  }
  return std::nullopt;
}

std::optional<at::DimVector> max_pool3d_sizes(
    const at::Tensor& self,
    at::IntArrayRef kernel,
    at::IntArrayRef stride,
    at::IntArrayRef padding,
    at::IntArrayRef dilation,
    bool ceil_mode) {
  const auto k = triple(kernel, {});
  const auto s = triple(stride, kernel);
  const auto p = triple(padding, {});
  const auto d = triple(dilation, {});
  if (!k || !s || !p || !d || !is_image(self, 3) || !all_positive(*k) || !all_positive(*s) ||
      !all_positive(*d)) {
    return std::nullopt;
  }
  at::DimVector sizes(self.sizes());
  for (int i = 0; i < 3; ++i) {
    auto& size = sizes[self.dim() - 3 + i];
    size = at::native::pooling_output_shape<int64_t>(
        size, (*k)[i], (*p)[i], (*s)[i], (*d)[i], ceil_mode);
    if (size < 1 || (*p)[i] > (*k)[i] / 2) {
      return std::nullopt;
    }
  }
  return sizes;
}

Outputs max_pool3d(
    const at::Tensor& self,
    at::IntArrayRef kernel,
    at::IntArrayRef stride,
    at::IntArrayRef padding,
    at::IntArrayRef dilation,
    bool ceil_mode) {
  const auto sizes = max_pool3d_sizes(self, kernel, stride, padding, dilation, ceil_mode);
  if (!sizes) {
    return decline();
  }
  auto result = make_as(self, *sizes, 5);
  auto indices = make_like(result, at::kLong);
  return outputs(std::move(result), std::move(indices));
}

Outputs max_pool3d_backward(
    const at::Tensor& grad,
    const at::Tensor& self,
    at::IntArrayRef kernel,
    at::IntArrayRef stride,
    at::IntArrayRef padding,
    at::IntArrayRef dilation,
    bool ceil_mode,
    const at::Tensor& indices) {
  const auto sizes = max_pool3d_sizes(self, kernel, stride, padding, dilation, ceil_mode);
  if (!sizes || grad.sizes() != *sizes || indices.sizes() != *sizes || !same_dtype(grad, self) ||
      indices.scalar_type() != at::kLong) {
    return decline();
  }
  return outputs(make_as(self, self.sizes(), 5));
}

template <int spatial>
Outputs max_unpool(const at::Tensor& self, const at::Tensor& indices, at::IntArrayRef output_size) {
  if (!is_image(self, spatial) || indices.sizes() != self.sizes() ||
      indices.scalar_type() != at::kLong || output_size.size() != spatial ||
      !all_positive(output_size) || at::globalContext().deterministicAlgorithms()) {
    return decline();
  }
  const auto sizes = with_last(self, output_size);
  return outputs(pooled<spatial>(self, sizes));
}

Outputs max_unpool3d(
    const at::Tensor& self,
    const at::Tensor& indices,
    at::IntArrayRef output_size,
    at::IntArrayRef stride,
    at::IntArrayRef padding) {
  return stride.size() == 3 && padding.size() == 3 && all_positive(stride)
      ? max_unpool<3>(self, indices, output_size)
      : decline();
}

Outputs fractional_max_pool3d_backward(
    const at::Tensor& grad,
    const at::Tensor& self,
    at::IntArrayRef kernel,
    at::IntArrayRef output_size,
    const at::Tensor& indices) {
  if (!is_image(self, 3) || kernel.size() != 3 || output_size.size() != 3 ||
      grad.sizes() != with_last(self, output_size) || indices.sizes() != grad.sizes() ||
      indices.scalar_type() != at::kLong || !same_dtype(grad, self)) {
    return decline();
  }
  return outputs(make(self.sizes(), self.scalar_type()));
}

// ---- Padding

template <int spatial>
at::DimVector padded(const at::Tensor& self, at::IntArrayRef padding) {
  at::DimVector sizes(self.sizes());
  for (int i = 0; i < spatial; ++i) {
    sizes[self.dim() - 1 - i] += padding[2 * i] + padding[2 * i + 1];
  }
  return sizes;
}

template <bool reflects>
bool is_padding_of(const at::Tensor& self, at::IntArrayRef padding, at::IntArrayRef sizes) {
  for (size_t i = 0; i < padding.size(); ++i) {
    if (reflects && padding[i] >= self.size(self.dim() - 1 - static_cast<int64_t>(i / 2))) {
      return false;
    }
  }
  return all_positive(sizes.slice(1));
}

Outputs reflection_pad2d(const at::Tensor& self, at::IntArrayRef padding) {
  at::native::padding::check_valid_input<2>(self, padding);
  const auto sizes = padded<2>(self, padding);
  if (!is_padding_of<true>(self, padding, sizes)) {
    return decline();
  }
  return outputs(make_as(self, sizes, 4));
}

template <int spatial, bool reflects>
Outputs pad_backward(const at::Tensor& grad, const at::Tensor& self, at::IntArrayRef padding) {
  at::native::padding::check_valid_input<spatial>(self, padding);
  const auto sizes = padded<spatial>(self, padding);
  if (!is_padding_of<reflects>(self, padding, sizes) || grad.sizes() != sizes ||
      !same_dtype(grad, self)) {
    return decline();
  }
  return outputs(make(self.sizes(), self.scalar_type(), self.suggest_memory_format()));
}

// ---- Sampling by a grid

bool is_grid(
    const at::Tensor& self,
    const at::Tensor& grid,
    int64_t spatial,
    int64_t interpolation,
    int64_t padding) {
  at::native::check_grid_sampler_common(self, grid);
  return self.dim() == spatial + 2 && grid.dim() == spatial + 2 && same_dtype(self, grid) &&
      interpolation >= 0 && interpolation <= (spatial == 2 ? 2 : 1) && padding >= 0 && padding <= 2;
}

template <int spatial>
Outputs grid_sampler(
    const at::Tensor& self,
    const at::Tensor& grid,
    int64_t interpolation,
    int64_t padding) {
  if (!is_grid(self, grid, spatial, interpolation, padding)) {
    return decline();
  }
  return outputs(make(with_last(self, grid.sizes().slice(1, spatial)), self.scalar_type()));
}

template <int spatial>
Outputs grid_sampler_backward(
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& grid,
    int64_t interpolation,
    int64_t padding,
    bool,
    std::array<bool, 2> mask) {
  if (!is_grid(self, grid, spatial, interpolation, padding) || !same_dtype(grad, self) ||
      grad.sizes() != with_last(self, grid.sizes().slice(1, spatial))) {
    return decline();
  }
  return outputs(
      mask[0] ? make(self.sizes(), self.scalar_type()) : at::Tensor(),
      make(grid.sizes(), grid.scalar_type()));
}

// ---- Shuffles

Outputs pixel_shuffle(const at::Tensor& self, int64_t factor) {
  at::native::check_pixel_shuffle_shapes(self, factor);
  const auto sizes = with_last(
      self, {self.size(-3) / (factor * factor), self.size(-2) * factor, self.size(-1) * factor});
  return outputs(make(sizes, self.scalar_type(), self.suggest_memory_format()));
}

Outputs pixel_unshuffle(const at::Tensor& self, int64_t factor) {
  at::native::check_pixel_unshuffle_shapes(self, factor);
  if (self.numel() == 0) { // a copy of the input, whatever the factor
    return outputs(make_like(self));
  }
  const auto sizes = with_last(
      self, {self.size(-3) * factor * factor, self.size(-2) / factor, self.size(-1) / factor});
  return outputs(make(sizes, self.scalar_type(), self.suggest_memory_format()));
}

Outputs channel_shuffle(const at::Tensor& self, int64_t groups) {
  // Without elements the result is a view of the input.
  if (self.dim() <= 2 || groups <= 0 || self.numel() == 0 || self.size(1) % groups != 0) {
    return decline();
  }
  return outputs(make(self.sizes(), self.scalar_type(), self.suggest_memory_format()));
}

// ---- Segments

// The sizes of `data` with its segments' number along `axis`: lengths or offsets tell them, not
// their values.
std::optional<at::DimVector> segmented(
    const at::Tensor& data,
    const at::Tensor& lengths,
    const at::Tensor& offsets,
    int64_t axis) {
  const auto& by = lengths.defined() ? lengths : offsets;
  if (!by.defined() || (lengths.defined() && offsets.defined()) || data.dim() == 0 || axis < 0 ||
      by.dim() != axis + 1 || axis >= data.dim() || data.numel() == 0 ||
      by.size(axis) < (offsets.defined() ? 1 : 0) ||
      (by.scalar_type() != at::kLong && by.scalar_type() != at::kInt) ||
      by.sizes().slice(0, axis) != data.sizes().slice(0, axis)) {
    return std::nullopt;
  }
  at::DimVector sizes(data.sizes());
  sizes[axis] = by.size(axis) - (offsets.defined() ? 1 : 0);
  return sizes;
}

bool is_segment_reduction(std::string_view name) {
  return name == "sum" || name == "mean" || name == "max" || name == "min" || name == "prod";
}

Outputs segment_reduce(
    const at::Tensor& data,
    std::string_view reduce,
    const at::Tensor& lengths,
    const at::Tensor& indices,
    const at::Tensor& offsets,
    int64_t axis) {
  const auto sizes = segmented(data, lengths, offsets, axis);
  if (!sizes || indices.defined() || !is_segment_reduction(reduce)) {
    return decline();
  }
  return outputs(make(*sizes, data.scalar_type()));
}

Outputs segment_reduce_backward(
    const at::Tensor& grad,
    const at::Tensor& output,
    const at::Tensor& data,
    std::string_view reduce,
    const at::Tensor& lengths,
    const at::Tensor& offsets,
    int64_t axis) {
  const auto sizes = segmented(data, lengths, offsets, axis);
  if (!sizes || !is_segment_reduction(reduce) || grad.sizes() != *sizes ||
      output.sizes() != *sizes || !same_dtype(grad, data) || !same_dtype(output, data)) {
    return decline();
  }
  return outputs(make(data.sizes(), data.scalar_type()));
}

// ---- Rows

// Reads each input once, as its windows hardly overlap.
constexpr auto pool_flops = per_input<1>;

int64_t max_pool3d_flops(Arguments arguments, at::TensorList) {
  int64_t window = 1;
  const auto kernel = arguments[1].toDimVector();
  for (int i = 0; i < 3; ++i) {
    window *= kernel[kernel.size() == 1 ? 0 : i];
  }
  const auto& self = arguments[0].toTensor();
  const auto sizes = max_pool3d_sizes(
      self,
      kernel,
      arguments[2].toDimVector(),
      arguments[3].toDimVector(),
      arguments[4].toDimVector(),
      arguments[5].toBool());
  return sizes ? window * c10::multiply_integers(*sizes) : -1;
}

// Of each sample: its weights, and a multiplication and addition for each corner and channel.
template <int corners, int input, int grid>
int64_t grid_flops(Arguments arguments, at::TensorList) {
  const auto& values = arguments[input].toTensor();
  const auto& points = arguments[grid].toTensor();
  const int64_t samples = points.numel() / points.size(-1);
  return samples * corners * (2 * values.size(1) + 4);
}

const ShapeRow kRows[] = {
    {"_segment_reduce_backward", shape<segment_reduce_backward>, per_input<1, 2>},
    {"_adaptive_avg_pool2d", shape<adaptive_avg_pool<2>>, pool_flops},
    {"_adaptive_avg_pool2d_backward", shape<adaptive_avg_pool_backward<2>>, per_input<1, 1>},
    {"_adaptive_avg_pool3d", shape<adaptive_avg_pool<3>>, pool_flops},
    {"_adaptive_avg_pool3d_backward", shape<adaptive_avg_pool_backward<3>>, per_input<1, 1>},
    {"adaptive_avg_pool2d.out", shape<adaptive_avg_pool<2>>, pool_flops},
    {"adaptive_avg_pool3d.out", shape<adaptive_avg_pool<3>>, pool_flops},
    {"adaptive_avg_pool3d_backward.grad_input",
     shape<adaptive_avg_pool_backward<3>>,
     per_input<1, 1>},
    {"channel_shuffle", shape<channel_shuffle>, no_flops},
    {"fractional_max_pool3d_backward", shape<fractional_max_pool3d_backward>, per_input<1>},
    {"fractional_max_pool3d_backward.grad_input",
     shape<fractional_max_pool3d_backward>,
     per_input<1>},
    {"grid_sampler_2d", shape<grid_sampler<2>>, grid_flops<4, 0, 1>},
    {"grid_sampler_2d_backward", shape<grid_sampler_backward<2>>, grid_flops<8, 1, 2>},
    {"grid_sampler_3d", shape<grid_sampler<3>>, grid_flops<8, 0, 1>},
    {"grid_sampler_3d_backward", shape<grid_sampler_backward<3>>, grid_flops<16, 1, 2>},
    {"max_pool3d_with_indices", shape<max_pool3d>, max_pool3d_flops},
    {"max_pool3d_with_indices.out", shape<max_pool3d>, max_pool3d_flops},
    {"max_pool3d_with_indices_backward", shape<max_pool3d_backward>, per_input<1>},
    {"max_pool3d_with_indices_backward.grad_input", shape<max_pool3d_backward>, per_input<1>},
    {"max_unpool2d", shape<max_unpool<2>>, no_flops},
    {"max_unpool2d.out", shape<max_unpool<2>>, no_flops},
    {"max_unpool3d", shape<max_unpool3d>, no_flops},
    {"max_unpool3d.out", shape<max_unpool3d>, no_flops},
    {"native_channel_shuffle", shape<channel_shuffle>, no_flops},
    {"pixel_shuffle", shape<pixel_shuffle>, no_flops},
    {"pixel_unshuffle", shape<pixel_unshuffle>, no_flops},
    {"reflection_pad2d", shape<reflection_pad2d>, no_flops},
    {"reflection_pad2d.out", shape<reflection_pad2d>, no_flops},
    {"reflection_pad2d_backward", shape<pad_backward<2, true>>, per_input<1>},
    {"reflection_pad2d_backward.grad_input", shape<pad_backward<2, true>>, per_input<1>},
    {"replication_pad2d_backward", shape<pad_backward<2, false>>, per_input<1>},
    {"replication_pad2d_backward.grad_input", shape<pad_backward<2, false>>, per_input<1>},
    {"replication_pad3d_backward", shape<pad_backward<3, false>>, per_input<1>},
    {"replication_pad3d_backward.grad_input", shape<pad_backward<3, false>>, per_input<1>},
    {"segment_reduce", shape<segment_reduce>, per_input<1>},
};

} // namespace

c10::ArrayRef<ShapeRow> pooling_rows() {
  return kRows;
}

} // namespace accel
