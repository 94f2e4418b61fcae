// im2col and col2im. Convolutions themselves are in ../convolution.cpp.
#include <ATen/native/im2col_shape_check.h>

#include "../shapes.h"

namespace accel {

namespace {

bool all_pairs(std::initializer_list<at::IntArrayRef> lists) {
  return std::all_of(lists.begin(), lists.end(), [](const auto& list) { return list.size() == 2; });
}

Outputs im2col(
    const at::Tensor& self,
    at::IntArrayRef kernel,
    at::IntArrayRef dilation,
    at::IntArrayRef padding,
    at::IntArrayRef stride) {
  if (!all_pairs({kernel, dilation, padding, stride})) {
    return decline();
  }
  at::native::im2col_shape_check(
      self,
      at::Tensor(),
      kernel[0],
      kernel[1],
      dilation[0],
      dilation[1],
      padding[0],
      padding[1],
      stride[0],
      stride[1]);
  int64_t windows = 1;
  for (int i = 0; i < 2; ++i) {
    windows *= at::native::sliding_window_count(
        self.size(i - 2), padding[i], dilation[i], kernel[i], stride[i]);
  }
  at::DimVector sizes(self.sizes().slice(0, self.dim() - 2));
  sizes.back() *= kernel[0] * kernel[1];
  sizes.push_back(windows);
  return outputs(make(sizes, self.scalar_type()));
}

Outputs col2im(
    const at::Tensor& self,
    at::IntArrayRef output_size,
    at::IntArrayRef kernel,
    at::IntArrayRef dilation,
    at::IntArrayRef padding,
    at::IntArrayRef stride) {
  if (!all_pairs({output_size, kernel, dilation, padding, stride})) {
    return decline();
  }
  at::native::col2im_shape_check(
      self,
      at::Tensor(),
      output_size[0],
      output_size[1],
      kernel[0],
      kernel[1],
      dilation[0],
      dilation[1],
      padding[0],
      padding[1],
      stride[0],
      stride[1]);
  at::DimVector sizes(self.sizes().slice(0, self.dim() - 1));
  sizes.back() /= kernel[0] * kernel[1];
  sizes.append(output_size.begin(), output_size.end());
  return outputs(make(sizes, self.scalar_type()));
}

const ShapeRow kRows[] = {
    {"col2im", shape<col2im>, per_input<1>},
    {"col2im.out", shape<col2im>, per_input<1>},
    {"im2col", shape<im2col>, no_flops},
    {"im2col.out", shape<im2col>, no_flops},
};

} // namespace

c10::ArrayRef<ShapeRow> convolution_rows() {
  return kRows;
}

} // namespace accel
