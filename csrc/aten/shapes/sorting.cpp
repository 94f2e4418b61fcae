// Order statistics and searches.
#include <ATen/WrapDimUtils.h>
#include <ATen/native/BucketizationUtils.h>

#include <algorithm>
#include <climits>
#include <cmath>

#include "../shapes.h"

namespace accel {

namespace {

bool has_dim(const at::Tensor& self, int64_t dim) {
  const int64_t rank = std::max<int64_t>(self.dim(), 1);
  return dim >= -rank && dim < rank;
}

// ---- One element of each slice: its value and its index

// The sizes without `dim`; none if it is no dimension or a slice has no elements.
std::optional<at::DimVector> without(const at::Tensor& self, int64_t dim, bool keepdim) {
  if (!has_dim(self, dim) || (self.dim() > 0 && self.size(dim) == 0)) {
    return std::nullopt;
  }
  at::DimVector sizes(self.sizes());
  if (self.dim() > 0) {
    const auto at = sizes.begin() + (dim < 0 ? dim + self.dim() : dim);
    if (keepdim) {
      *at = 1;
    } else {
      sizes.erase(at);
    }
  }
  return sizes;
}

Outputs value_and_index(const at::Tensor& self, int64_t dim, bool keepdim) {
  const auto sizes = without(self, dim, keepdim);
  return sizes ? outputs(make(*sizes, self.scalar_type()), make(*sizes, at::kLong)) : decline();
}

Outputs kthvalue(const at::Tensor& self, int64_t k, int64_t dim, bool keepdim) {
  if (!has_dim(self, dim) || k < 1 || k > (self.dim() == 0 ? 1 : self.size(dim))) {
    return decline();
  }
  return value_and_index(self, dim, keepdim);
}

Outputs median_of_all(const at::Tensor& self) {
  return self.numel() == 0 ? decline() : outputs(make({}, self.scalar_type()));
}

// ---- Cumulative

// Computes into arguments that the caller made.
Outputs cumulative(
    const at::Tensor& self,
    const at::Tensor& values,
    const at::Tensor& indices,
    int64_t dim) {
  const bool fits = has_dim(self, dim) && values.sizes() == self.sizes() &&
      indices.sizes() == self.sizes() && values.scalar_type() == self.scalar_type() &&
      indices.scalar_type() == at::kLong;
  return fits ? outputs() : decline();
}

Outputs logcumsumexp(const at::Tensor& self, int64_t dim) {
  return has_dim(self, dim) ? outputs(make(self.sizes(), self.scalar_type())) : decline();
}

// ---- Searches in sorted sequences

bool is_searchable(
    const at::Tensor& sequence,
    bool int32,
    bool right,
    std::optional<std::string_view> side,
    const at::Tensor& sorter) {
  const bool sides = !side || *side == "right" || (*side == "left" && !right);
  // Whether the sorter's values are in range is seen by the worker.
  const bool sorted = !sorter.defined() ||
      (sorter.sizes() == sequence.sizes() && sorter.scalar_type() == at::kLong);
  return sides && sorted && sequence.dim() > 0 && (!int32 || sequence.sizes().back() < INT_MAX);
}

Outputs searchsorted(
    const at::Tensor& sequence,
    const at::Tensor& self,
    bool int32,
    bool right,
    std::optional<std::string_view> side,
    const at::Tensor& sorter) {
  if (!is_searchable(sequence, int32, right, side, sorter) ||
      (sequence.dim() > 1 &&
       !at::native::searchsorted_dims_matched_before_last_dim(sequence, self))) {
    return decline();
  }
  return outputs(make(self.sizes(), int32 ? at::kInt : at::kLong));
}

Outputs searchsorted_scalar(
    const at::Tensor& sequence,
    at::Scalar,
    bool int32,
    bool right,
    std::optional<std::string_view> side,
    const at::Tensor& sorter) {
  if (!is_searchable(sequence, int32, right, side, sorter) || sequence.dim() != 1) {
    return decline();
  }
  return outputs(make({}, int32 ? at::kInt : at::kLong));
}

Outputs bucketize(const at::Tensor& self, const at::Tensor& boundaries, bool int32, bool right) {
  return boundaries.dim() == 1
      ? searchsorted(boundaries, self, int32, right, std::nullopt, at::Tensor())
      : decline();
}

Outputs bucketize_scalar(at::Scalar self, const at::Tensor& boundaries, bool int32, bool right) {
  return searchsorted_scalar(boundaries, self, int32, right, std::nullopt, at::Tensor());
}

// A comparison for each halving of the sequence. Scalars make one search.
template <size_t sequence_at>
int64_t search_flops(Arguments arguments, at::TensorList) {
  const auto& values = arguments[1 - sequence_at];
  const auto& sizes = arguments[sequence_at].toTensor().sizes();
  const auto steps =
      std::ceil(std::log2(static_cast<double>(sizes.empty() ? 1 : sizes.back()) + 1));
  return static_cast<int64_t>(steps) * (values.isTensor() ? values.toTensor().numel() : 1);
}

// ---- Histograms: whether the values span a finite range is seen by the worker

bool is_countable(const at::Tensor& self, const at::Tensor& weight) {
  const auto dtype = self.scalar_type();
  return (dtype == at::kFloat || dtype == at::kDouble) &&
      (!weight.defined() || weight.scalar_type() == dtype);
}

bool is_range(double min, double max) {
  return std::isfinite(min) && std::isfinite(max) && min <= max;
}

using Range = std::optional<c10::List<double>>;

// One pair for each coordinate.
bool are_ranges(const Range& range, size_t coordinates) {
  if (range && range->size() != 2 * coordinates) {
    return false;
  }
  for (size_t i = 0; range && i < coordinates; ++i) {
    if (!is_range(range->get(2 * i), range->get(2 * i + 1))) {
      return false;
    }
  }
  return true;
}

Outputs histc(const at::Tensor& self, int64_t bins, at::Scalar min, at::Scalar max) {
  if (bins < 1 || !at::isFloatingType(self.scalar_type()) || min.isComplex() || max.isComplex() ||
      !is_range(min.toDouble(), max.toDouble())) {
    return decline();
  }
  return outputs(make({bins}, self.scalar_type()));
}

Outputs flat_histogram(const at::Tensor& self, int64_t bins, const at::Tensor& weight) {
  if (bins < 1 || !is_countable(self, weight) ||
      (weight.defined() && weight.numel() != self.numel())) {
    return decline();
  }
  return outputs(make({bins}, self.scalar_type()), make({bins + 1}, self.scalar_type()));
}

Outputs histogram(const at::Tensor& self, int64_t bins, Range range, const at::Tensor& weight) {
  return are_ranges(range, 1) ? flat_histogram(self, bins, weight) : decline();
}

bool are_edges(const at::Tensor& bins, const at::Tensor& self) {
  return bins.dim() == 1 && bins.scalar_type() == self.scalar_type();
}

Outputs
histogram_of_edges(const at::Tensor& self, const at::Tensor& bins, const at::Tensor& weight) {
  return are_edges(bins, self) ? flat_histogram(self, bins.numel() - 1, weight) : decline();
}

// `self` has a point in each row.
Outputs
histogram_of_points(const at::Tensor& self, at::IntArrayRef bins, const at::Tensor& weight) {
  const bool positive = std::all_of(bins.begin(), bins.end(), [](int64_t n) { return n > 0; });
  if (!positive || self.dim() < 2 || bins.empty() ||
      self.size(-1) != static_cast<int64_t>(bins.size()) || !is_countable(self, weight) ||
      (weight.defined() && weight.sizes() != self.sizes().slice(0, self.dim() - 1))) {
    return decline();
  }
  return outputs(make(bins, self.scalar_type()));
}

Outputs
histogramdd(const at::Tensor& self, at::IntArrayRef bins, Range range, const at::Tensor& weight) {
  return are_ranges(range, bins.size()) ? histogram_of_points(self, bins, weight) : decline();
}

Outputs
histogramdd_of_edges(const at::Tensor& self, at::TensorList bins, const at::Tensor& weight) {
  at::DimVector counts;
  for (const auto& edges : bins) {
    if (!are_edges(edges, self)) {
      return decline();
    }
    counts.push_back(edges.numel() - 1);
  }
  return histogram_of_points(self, counts, weight);
}

Outputs histogramdd_edges(
    const at::Tensor& self,
    at::IntArrayRef bins,
    Range range,
    const at::Tensor& weight) {
  auto result = histogramdd(self, bins, range, weight);
  if (result) {
    result->clear();
    for (const int64_t count : bins) {
      result->push_back(make({count + 1}, self.scalar_type()));
    }
  }
  return result;
}

const ShapeRow kRows[] = {
    {"_cummax_helper", shape<cumulative>, per_input<1>},
    {"_cummin_helper", shape<cumulative>, per_input<1>},
    {"_histogramdd_bin_edges", shape<histogramdd_edges>, per_output<2>},
    {"_histogramdd_from_bin_cts", shape<histogramdd>, per_input<2>},
    {"_histogramdd_from_bin_tensors", shape<histogramdd_of_edges>, unknown_flops},
    {"_logcumsumexp", shape<logcumsumexp>, per_input<4>},
    {"_logcumsumexp.out", shape<logcumsumexp>, per_input<4>},
    {"bucketize.Scalar", shape<bucketize_scalar>, search_flops<1>},
    {"bucketize.Tensor", shape<bucketize>, search_flops<1>},
    {"bucketize.Tensor_out", shape<bucketize>, search_flops<1>},
    {"histc", shape<histc>, per_input<2>},
    {"histc.out", shape<histc>, per_input<2>},
    {"histogram.bin_ct", shape<histogram>, per_input<2>},
    {"histogram.bin_ct_out", shape<histogram>, per_input<2>},
    {"histogram.bins_tensor", shape<histogram_of_edges>, search_flops<1>},
    {"histogram.bins_tensor_out", shape<histogram_of_edges>, search_flops<1>},
    {"kthvalue.values", shape<kthvalue>, unknown_flops},
    {"median", shape<median_of_all>, unknown_flops},
    {"median.dim_values", shape<value_and_index>, unknown_flops},
    {"mode", shape<value_and_index>, unknown_flops},
    {"mode.values", shape<value_and_index>, unknown_flops},
    {"nanmedian", shape<median_of_all>, unknown_flops},
    {"nanmedian.dim_values", shape<value_and_index>, unknown_flops},
    {"searchsorted.Scalar", shape<searchsorted_scalar>, search_flops<0>},
    {"searchsorted.Scalar_out", shape<searchsorted_scalar>, search_flops<0>},
    {"searchsorted.Tensor", shape<searchsorted>, search_flops<0>},
    {"searchsorted.Tensor_out", shape<searchsorted>, search_flops<0>},
};

} // namespace

c10::ArrayRef<ShapeRow> sorting_rows() {
  return kRows;
}

} // namespace accel
