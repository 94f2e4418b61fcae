// For the whole file, headers included, as GCC does not inline across functions with different
// options: vectorised loops, and philox.h's rule. The square roots vectorise with -fno-math-errno
// only, which GCC takes from the command line alone.
#if defined(__clang__)
#pragma clang fp contract(off)
#elif defined(__GNUC__)
#pragma GCC optimize("O3,no-math-errno,fp-contract=off")
#endif

#include "random_kernels.h"

#include <ATen/Dispatch.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>
#include <c10/util/FunctionRef.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "../runtime/philox.h"

// Two builds of the loops below, chosen at load time. The results are equal: philox.h lets no
// product be contracted and uses no operation that is rounded otherwise.
#if defined(__x86_64__) && defined(__GLIBC__)
#define ACCEL_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define ACCEL_CLONES
#endif

namespace accel::random {

namespace {

constexpr int kBlock =
    256; // elements drawn at a time: 4 KiB of words and results stay in the first-level cache
constexpr int64_t kGrain = 8192; // elements worth a second thread

// Plain arrays and restrict pointers let the compiler vectorise; each lane carries the whole 64-bit
// index.
ACCEL_CLONES void
draw(Key key, uint64_t first, int n, uint32_t* __restrict r0, uint32_t* __restrict r1) {
  const auto low = static_cast<uint32_t>(first);
  const auto high = static_cast<uint32_t>(first >> 32);
  for (int j = 0; j < n; ++j) {
    const uint32_t i = low + static_cast<uint32_t>(j);
    const philox::Words w = philox::philox4x32(
        {i, high + (i < low ? 1u : 0u), 0, 0},
        static_cast<uint32_t>(key),
        static_cast<uint32_t>(key >> 32));
    r0[j] = w.r0;
    r1[j] = w.r1;
  }
}

ACCEL_CLONES void to_uniform(const uint32_t* __restrict r0, int n, float* __restrict u) {
  for (int j = 0; j < n; ++j) {
    u[j] = philox::uniform(r0[j]);
  }
}

ACCEL_CLONES void to_normal(
    const uint32_t* __restrict r0,
    const uint32_t* __restrict r1,
    int n,
    float* __restrict z) {
  for (int j = 0; j < n; ++j) {
    z[j] = philox::cosine(r1[j]);
  }
  // Loops of their own: GCC would branch on the lower bound, and then not vectorise.
  float u[kBlock];
  for (int j = 0; j < n; ++j) {
    u[j] = philox::positive_uniform(r0[j]);
  }
  for (int j = 0; j < n; ++j) {
    z[j] *= philox::radius(u[j]);
  }
}

ACCEL_CLONES void to_log(const float* __restrict u, int n, double* __restrict result) {
  for (int j = 0; j < n; ++j) {
    result[j] = philox::log(u[j]);
  }
}

// Half and bfloat16 are transformed in float32, as the draw is; double in double.
template <class T>
using Acc = at::opmath_type<T>;

// Calls body(first, n) for runs of at most kBlock elements of a contiguous tensor, on libtorch's
// own thread team: that is why an iterator splits the work.
void for_each_run(const at::Tensor& dense, c10::function_ref<void(int64_t, int)> body) {
  const auto* base = static_cast<const char*>(dense.const_data_ptr());
  const auto item = static_cast<int64_t>(dense.element_size());
  auto iter = at::TensorIterator::borrowing_nullary_op(dense);
  iter.for_each(
      [&](char** data, const int64_t* strides, int64_t inner, int64_t outer) {
        for (int64_t row = 0; row < outer; ++row) {
          const int64_t begin = (data[0] + row * strides[1] - base) / item;
          for (int64_t done = 0; done < inner; done += kBlock) {
            body(begin + done, static_cast<int>(std::min<int64_t>(kBlock, inner - done)));
          }
        }
      },
      kGrain);
}

// Runs `fill` on a contiguous tensor that ends up in `out`.
template <class Fill>
void through_dense(const at::Tensor& out, const Fill& fill) {
  if (out.is_contiguous()) {
    fill(out);
    return;
  }
  const at::Tensor dense = at::empty(out.sizes(), out.options());
  fill(dense);
  out.copy_(dense);
}

// Hands out the words of consecutive elements: block(first, data, r0, r1, n) sets data[0 .. n),
// the elements from `first` on.
template <class T, class Block>
void fill_blocks(const at::Tensor& out, Key key, const Block& block) {
  through_dense(out, [&](const at::Tensor& dense) {
    T* const begin = dense.mutable_data_ptr<T>();
    for_each_run(dense, [&](int64_t first, int n) {
      uint32_t r0[kBlock];
      uint32_t r1[kBlock];
      draw(key, first, n, r0, r1);
      block(first, begin + first, r0, r1, n);
    });
  });
}

// out[i] = transform(words of i), where transform gets (r0, r1).
template <class T, class Transform>
void fill_words(const at::Tensor& out, Key key, const Transform& transform) {
  fill_blocks<T>(out, key, [&](int64_t, T* data, const uint32_t* r0, const uint32_t* r1, int n) {
    for (int j = 0; j < n; ++j) {
      data[j] = transform(r0[j], r1[j]);
    }
  });
}

// out[i] = transform(u), where u is the uniform of i.
template <class T, class Transform>
void fill_uniform(const at::Tensor& out, Key key, const Transform& transform) {
  fill_blocks<T>(out, key, [&](int64_t, T* data, const uint32_t* r0, const uint32_t*, int n) {
    float u[kBlock];
    to_uniform(r0, n, u);
    for (int j = 0; j < n; ++j) {
      data[j] = static_cast<T>(transform(u[j]));
    }
  });
}

// out[i] = transform(log(u)), u held above 0, where the logarithm has no end.
template <class T, class Transform>
void fill_log_uniform(const at::Tensor& out, Key key, const Transform& transform) {
  fill_blocks<T>(out, key, [&](int64_t, T* data, const uint32_t* r0, const uint32_t*, int n) {
    float u[kBlock];
    double log_u[kBlock];
    to_uniform(r0, n, u);
    for (int j = 0; j < n; ++j) {
      u[j] = std::max(u[j], 0x1p-32f);
    }
    to_log(u, n, log_u);
    for (int j = 0; j < n; ++j) {
      data[j] = transform(log_u[j]);
    }
  });
}

// out[i] = transform(z), where z is the standard normal of i.
template <class T, class Transform>
void fill_normal(const at::Tensor& out, Key key, const Transform& transform) {
  fill_blocks<T>(out, key, [&](int64_t, T* data, const uint32_t* r0, const uint32_t* r1, int n) {
    float z[kBlock];
    to_normal(r0, r1, n, z);
    for (int j = 0; j < n; ++j) {
      data[j] = static_cast<T>(transform(z[j]));
    }
  });
}

uint64_t word64(uint32_t r0, uint32_t r1) {
  return static_cast<uint64_t>(r0) << 32 | r1;
}

// 1 / (1 - p) rounded to T, as the CPU's dropout gets it by dividing its noise in T. `scale` is
// that quotient in double.
template <class T>
Acc<T> dropout_factor(double scale) {
  if constexpr (std::is_same_v<c10::scalar_value_type<T>, double>) {
    return scale;
  } else {
    using Real = at::opmath_type<typename c10::scalar_value_type<T>::type>;
    return static_cast<Acc<T>>(static_cast<T>(Real(1) / static_cast<Real>(1.0 / scale)));
  }
}

} // namespace

void uniform(const at::Tensor& out, Key key, double from, double to) {
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, out.scalar_type(), "uniform_accel", [&] {
        const auto low = static_cast<Acc<scalar_t>>(from);
        const auto range = static_cast<Acc<scalar_t>>(to) - low;
        const auto end = static_cast<scalar_t>(to);
        // A draw that rounds up to `to` becomes `from`, as in torch.cuda: the range is half open in
        // every dtype.
        fill_uniform<scalar_t>(out, key, [=](float u) {
          const auto x = static_cast<scalar_t>(u * range + low);
          return x == end ? static_cast<scalar_t>(low) : x;
        });
      });
}

void normal(const at::Tensor& out, Key key, double mean, double std) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, out.scalar_type(), "normal_accel", [&] {
    const auto m = static_cast<Acc<scalar_t>>(mean);
    const auto s = static_cast<Acc<scalar_t>>(std);
    fill_normal<scalar_t>(out, key, [=](float z) { return z * s + m; });
  });
}

void log_normal(const at::Tensor& out, Key key, double mean, double std) {
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, out.scalar_type(), "log_normal_accel", [&] {
        const auto m = static_cast<Acc<scalar_t>>(mean);
        const auto s = static_cast<Acc<scalar_t>>(std);
        fill_normal<scalar_t>(
            out, key, [=](float z) { return static_cast<Acc<scalar_t>>(philox::exp(z * s + m)); });
      });
}

void exponential(const at::Tensor& out, Key key, double lambda) {
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, out.scalar_type(), "exponential_accel", [&] {
        using acc_t = Acc<scalar_t>;
        const acc_t factor = acc_t(-1) / static_cast<acc_t>(lambda);
        // As in torch.cuda 0 is never drawn: the largest uniforms count as the one whose logarithm
        // is -eps/2.
        const acc_t last = -std::numeric_limits<acc_t>::epsilon() / 2;
        fill_log_uniform<scalar_t>(out, key, [=](double log_u) {
          return static_cast<scalar_t>(factor * std::min(static_cast<acc_t>(log_u), last));
        });
      });
}

void cauchy(const at::Tensor& out, Key key, double median, double sigma) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, out.scalar_type(), "cauchy_accel", [&] {
    using acc_t = Acc<scalar_t>;
    const auto m = static_cast<acc_t>(median);
    const auto s = static_cast<acc_t>(sigma);
    const acc_t eps = std::numeric_limits<acc_t>::epsilon();
    fill_uniform<scalar_t>(out, key, [=](float u) {
      const acc_t x = std::clamp(static_cast<acc_t>(u), eps, 1 - eps); // keeps the tangent finite
      const auto angle = philox::sincos(static_cast<acc_t>(3.141592653589793) * (x - acc_t(0.5)));
      return m + s * static_cast<acc_t>(angle.sin / angle.cos);
    });
  });
}

void geometric(const at::Tensor& out, Key key, double p) {
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, out.scalar_type(), "geometric_accel", [&] {
    using acc_t = std::conditional_t<std::is_integral_v<scalar_t>, double, Acc<scalar_t>>;
    const auto log_1_p = static_cast<acc_t>(std::log1p(-p));
    fill_log_uniform<scalar_t>(out, key, [=](double log_u) {
      const acc_t x = std::ceil(static_cast<acc_t>(log_u) / log_1_p);
      if constexpr (std::is_integral_v<scalar_t>) {
        constexpr scalar_t max = std::numeric_limits<scalar_t>::max();
        return x < static_cast<acc_t>(max) ? static_cast<scalar_t>(x) : max;
      } else {
        return static_cast<scalar_t>(x);
      }
    });
  });
}

void bernoulli(const at::Tensor& out, Key key, double p) {
  AT_DISPATCH_ALL_TYPES_AND3(
      at::kBool, at::kHalf, at::kBFloat16, out.scalar_type(), "bernoulli_scalar_accel", [&] {
        const auto bound = static_cast<float>(p);
        fill_uniform<scalar_t>(out, key, [=](float u) { return u < bound ? 1.0f : 0.0f; });
      });
}

void bernoulli(const at::Tensor& out, Key key, const at::Tensor& p) {
  const at::Tensor bounds = p.to(at::kFloat).expand(out.sizes()).contiguous();
  const float* bound = bounds.const_data_ptr<float>();
  for (int64_t i = 0; i < bounds.numel(); ++i) {
    TORCH_CHECK(
        bound[i] >= 0 && bound[i] <= 1,
        "bernoulli_ expects p to be in [0, 1], but got p=",
        bound[i]);
  }
  AT_DISPATCH_ALL_TYPES_AND3(
      at::kBool, at::kHalf, at::kBFloat16, out.scalar_type(), "bernoulli_tensor_accel", [&] {
        const auto block =
            [&](int64_t first, scalar_t* data, const uint32_t* r0, const uint32_t*, int n) {
              for (int j = 0; j < n; ++j) {
                data[j] =
                    static_cast<scalar_t>(philox::uniform(r0[j]) < bound[first + j] ? 1.0f : 0.0f);
              }
            };
        fill_blocks<scalar_t>(out, key, block);
      });
}

void from_to(const at::Tensor& out, Key key, uint64_t range, int64_t base) {
  AT_DISPATCH_V2(
      out.scalar_type(),
      "random_from_to_accel",
      AT_WRAP([&] {
        const auto shift =
            [base](uint64_t x) { // modulo 2^64, as base + x may pass int64's end on the way
              return static_cast<scalar_t>(static_cast<int64_t>(x + static_cast<uint64_t>(base)));
            };
        // One word is skewed by at most range / 2^32; as in torch.cuda two are taken from 2^28 on.
        if (range < uint64_t{1} << 28) {
          const auto range32 = static_cast<uint32_t>(range);
          fill_words<scalar_t>(
              out, key, [=](uint32_t r0, uint32_t) { return shift(r0 % range32); });
        } else {
          fill_words<scalar_t>(
              out, key, [=](uint32_t r0, uint32_t r1) { return shift(word64(r0, r1) % range); });
        }
      }),
      AT_EXPAND(AT_ALL_TYPES),
      at::kBool,
      at::kHalf,
      at::kBFloat16,
      AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES));
}

void full_64_bits(const at::Tensor& out, Key key) {
  AT_DISPATCH_V2(
      out.scalar_type(),
      "random_full_64_bits_range_accel",
      AT_WRAP([&] {
        fill_words<scalar_t>(out, key, [](uint32_t r0, uint32_t r1) {
          return static_cast<scalar_t>(static_cast<int64_t>(word64(r0, r1)));
        });
      }),
      at::kLong,
      at::kDouble,
      at::kFloat,
      at::kBFloat16);
}

void full_range(const at::Tensor& out, Key key) {
  AT_DISPATCH_ALL_TYPES_AND3(
      at::kBool, at::kHalf, at::kBFloat16, out.scalar_type(), "random_accel", [&] {
        if constexpr (std::is_same_v<scalar_t, bool>) {
          fill_words<bool>(out, key, [](uint32_t r0, uint32_t) { return (r0 & 1) != 0; });
        } else {
          // digits is the number of value bits of an integral dtype, and the precision of a
          // floating one, whose last exact integer 2^digits is included.
          constexpr uint64_t range = (uint64_t{1} << std::numeric_limits<scalar_t>::digits) +
              (std::is_integral_v<scalar_t> ? 0 : 1);
          fill_words<scalar_t>(out, key, [](uint32_t r0, uint32_t r1) {
            const uint64_t x = sizeof(scalar_t) == 8 ? word64(r0, r1) : r0;
            return static_cast<scalar_t>(static_cast<int64_t>(x % range));
          });
        }
      });
}

void uniforms(float* out, Key key, uint64_t first, int64_t n) {
  uint32_t r0[kBlock];
  uint32_t r1[kBlock];
  for (int64_t done = 0; done < n; done += kBlock) {
    const auto count = static_cast<int>(std::min<int64_t>(kBlock, n - done));
    draw(key, first + static_cast<uint64_t>(done), count, r0, r1);
    to_uniform(r0, count, out + done);
  }
}

void dropout(
    const at::Tensor& out,
    const at::Tensor& mask,
    const at::Tensor& input,
    Key key,
    double p) {
  const at::Tensor source = input.contiguous();
  through_dense(mask, [&](const at::Tensor& dense_mask) {
    bool* keep = dense_mask.mutable_data_ptr<bool>();
    AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES_AND3(
        at::kHalf, at::kBFloat16, at::kComplexHalf, out.scalar_type(), "native_dropout_accel", [&] {
          const auto factor = dropout_factor<scalar_t>(1.0 / (1.0 - p));
          const auto bound = static_cast<float>(1.0 - p);
          const scalar_t* in = source.const_data_ptr<scalar_t>();
          const auto block =
              [&](int64_t first, scalar_t* data, const uint32_t* r0, const uint32_t*, int n) {
                for (int j = 0; j < n; ++j) {
                  const bool kept = philox::uniform(r0[j]) < bound;
                  keep[first + j] = kept;
                  data[j] = static_cast<scalar_t>(
                      static_cast<Acc<scalar_t>>(in[first + j]) *
                      (kept ? factor : Acc<scalar_t>(0)));
                }
              };
          fill_blocks<scalar_t>(out, key, block);
        });
  });
}

void dropout_backward(
    const at::Tensor& grad_input,
    const at::Tensor& grad,
    const at::Tensor& mask,
    double scale) {
  const at::Tensor source = grad.contiguous();
  const at::Tensor kept = mask.contiguous();
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES_AND3(
      at::kHalf,
      at::kBFloat16,
      at::kComplexHalf,
      grad_input.scalar_type(),
      "native_dropout_backward_accel",
      [&] {
        const auto factor = dropout_factor<scalar_t>(scale);
        const scalar_t* in = source.const_data_ptr<scalar_t>();
        const bool* keep = kept.const_data_ptr<bool>();
        through_dense(grad_input, [&](const at::Tensor& dense) {
          scalar_t* const begin = dense.mutable_data_ptr<scalar_t>();
          for_each_run(dense, [&](int64_t first, int n) {
            scalar_t* const data = begin + first;
            for (int j = 0; j < n; ++j) {
              data[j] = static_cast<scalar_t>(
                  static_cast<Acc<scalar_t>>(in[first + j]) *
                  (keep[first + j] ? factor : Acc<scalar_t>(0)));
            }
          });
        });
      });
}

} // namespace accel::random
