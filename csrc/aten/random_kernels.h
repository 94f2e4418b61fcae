// The loops that fill CPU aliases with the device's random numbers, run on a stream's worker.
// Element i in row-major order is a function of (key, i) alone, so strides and the split over
// threads do not matter. Arguments and dtypes have been checked on the host (random.cpp).
#pragma once

#include <ATen/core/Tensor.h>

#include "../runtime/generator.h"

namespace accel::random {

void uniform(const at::Tensor& out, Key key, double from, double to);
void normal(const at::Tensor& out, Key key, double mean, double std);
void log_normal(const at::Tensor& out, Key key, double mean, double std);
void exponential(const at::Tensor& out, Key key, double lambda);
void cauchy(const at::Tensor& out, Key key, double median, double sigma);
void geometric(const at::Tensor& out, Key key, double p);
void bernoulli(const at::Tensor& out, Key key, double p);
// One probability per element; `p` broadcasts to `out`. Throws if one lies outside [0, 1].
void bernoulli(const at::Tensor& out, Key key, const at::Tensor& p);
// Integers in [base, base + range).
void from_to(const at::Tensor& out, Key key, uint64_t range, int64_t base);
// All 2^64 values of an int64.
void full_64_bits(const at::Tensor& out, Key key);
// random_(): [0, max] of an integral dtype, [0, 2^digits] of a floating one.
void full_range(const at::Tensor& out, Key key);

// The uniform numbers in [0, 1) of elements [first, first + n) of the call with this key.
void uniforms(float* out, Key key, uint64_t first, int64_t n);

// out = input * (mask ? 1 / (1 - p) : 0), with mask drawn to be true with probability 1 - p.
void dropout(
    const at::Tensor& out,
    const at::Tensor& mask,
    const at::Tensor& input,
    Key key,
    double p);
void dropout_backward(
    const at::Tensor& grad_input,
    const at::Tensor& grad,
    const at::Tensor& mask,
    double scale);

} // namespace accel::random
