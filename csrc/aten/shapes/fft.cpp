// Fourier transforms.
#include <ATen/Context.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "../shapes.h"

namespace accel {

namespace {

using at::DimVector;
using at::IntArrayRef;

bool are_dims_of(const at::Tensor& self, IntArrayRef dims) {
  std::array<bool, 64> seen{};
  return self.dim() <= 64 && std::all_of(dims.begin(), dims.end(), [&](int64_t dim) {
           const bool valid = dim >= 0 && dim < self.dim() && !seen[dim];
           if (valid) {
             seen[dim] = true;
           }
           return valid;
         });
}

bool is_double_or_float(const at::Tensor& self) {
  const auto dtype = c10::toRealValueType(self.scalar_type());
  return dtype == at::kFloat || dtype == at::kDouble;
}

// MKL transforms dimensions from the one with the longest stride on.
DimVector by_stride(IntArrayRef strides, IntArrayRef dims, bool last_stays) {
  DimVector sorted(dims);
  std::sort(sorted.begin(), sorted.end() - (last_stays ? 1 : 0), [&](int64_t a, int64_t b) {
    return strides[a] > strides[b];
  });
  return sorted;
}

// The strides of a transform's result. MKL's has the other dimensions first, in the input's order,
// then the transformed ones, in the order given; ties are as std::sort leaves them there.
DimVector result_strides(IntArrayRef strides, IntArrayRef sizes, IntArrayRef dims) {
  DimVector order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  if (at::hasMKL()) {
    const auto batch_end = std::partition(order.begin(), order.end(), [&](int64_t dim) {
      return std::find(dims.begin(), dims.end(), dim) == dims.end();
    });
    std::sort(
        order.begin(), batch_end, [&](int64_t a, int64_t b) { return strides[a] > strides[b]; });
    std::copy(dims.begin(), dims.end(), batch_end);
  }
  DimVector result(sizes.size());
  int64_t stride = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    result[*dim] = stride;
    stride *= sizes[*dim];
  }
  return result;
}

// out= forms copy a result into the argument, which is contiguous if they resize it.
template <bool out>
Outputs transformed(IntArrayRef sizes, IntArrayRef strides, at::ScalarType dtype) {
  return outputs(out ? make(sizes, dtype) : make_strided(sizes, strides, dtype));
}

template <bool out>
Outputs c2c(const at::Tensor& self, IntArrayRef dims) {
  if (!self.is_complex() || !is_double_or_float(self) || self.numel() == 0 ||
      !are_dims_of(self, dims)) {
    return decline();
  }
  if (dims.empty()) { // a clone
    return outputs(out ? make(self.sizes(), self.scalar_type()) : make_like(self));
  }
  const auto sorted = by_stride(self.strides(), dims, /*last_stays=*/false);
  return transformed<out>(
      self.sizes(), result_strides(self.strides(), self.sizes(), sorted), self.scalar_type());
}

template <bool out>
Outputs r2c(const at::Tensor& self, IntArrayRef dims, int64_t, bool onesided) {
  if (self.is_complex() || !is_double_or_float(self) || self.numel() == 0 || dims.empty() ||
      !are_dims_of(self, dims)) {
    return decline();
  }
  DimVector sizes(self.sizes());
  if (onesided) {
    sizes[dims.back()] = sizes[dims.back()] / 2 + 1;
  }
  const auto sorted = by_stride(self.strides(), dims, /*last_stays=*/true);
  return transformed<out>(
      sizes, result_strides(self.strides(), sizes, sorted), c10::toComplexType(self.scalar_type()));
}

// All dimensions but the last are transformed as complex ones, then it becomes real.
template <bool out>
Outputs c2r(const at::Tensor& self, IntArrayRef dims, int64_t, int64_t last_size) {
  if (!self.is_complex() || !is_double_or_float(self) || self.numel() == 0 || dims.empty() ||
      !are_dims_of(self, dims) || last_size < 1 || self.size(dims.back()) < last_size / 2 + 1) {
    return decline();
  }
  const auto first = dims.slice(0, dims.size() - 1);
  DimVector strides(self.strides());
  if (!first.empty()) {
    strides = result_strides(strides, self.sizes(), by_stride(strides, first, false));
  }
  DimVector sizes(self.sizes());
  sizes[dims.back()] = last_size;
  return transformed<out>(
      sizes,
      result_strides(strides, sizes, dims.slice(dims.size() - 1)),
      c10::toRealValueType(self.scalar_type()));
}

// 5 n log2(n) for a complex transform of n elements, half of it for a real one.
int64_t flops_of(const at::Tensor& signal, Arguments arguments) {
  double transform = 1;
  for (const int64_t dim : arguments[1].toDimVector()) {
    transform *= static_cast<double>(signal.size(dim));
  }
  const double complex = 5.0 * static_cast<double>(signal.numel()) * std::log2(transform);
  return static_cast<int64_t>(signal.is_complex() ? complex : complex / 2);
}
int64_t flops_of_input(Arguments arguments, at::TensorList) {
  return flops_of(arguments[0].toTensor(), arguments);
}
int64_t flops_of_output(Arguments arguments, at::TensorList outputs) {
  return flops_of(outputs[0], arguments);
}

const ShapeRow kRows[] = {
    {"_fft_c2c", shape<c2c<false>>, flops_of_input},
    {"_fft_c2c.out", shape<c2c<true>>, flops_of_input},
    {"_fft_c2r", shape<c2r<false>>, flops_of_output},
    {"_fft_c2r.out", shape<c2r<true>>, flops_of_output},
    {"_fft_r2c", shape<r2c<false>>, flops_of_input},
    {"_fft_r2c.out", shape<r2c<true>>, flops_of_input},
};

} // namespace

c10::ArrayRef<ShapeRow> fft_rows() {
  return kRows;
}

} // namespace accel
