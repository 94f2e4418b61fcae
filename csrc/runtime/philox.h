// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) and the
// mathematics on its words: the definition of the device's random numbers.
//
// The numbers are Triton's: uniform is tl.rand(key, i), normal is tl.randn(key, i) with log and cos
// correctly rounded to float32. Both are computed here in double, from power series with fixed
// coefficients and in a fixed order, so they depend on no libm. Nor on the instruction set,
// provided that no product is contracted into an FMA: whoever includes this compiles with
// -ffp-contract=off. Selections are made on bits, so that loops over these functions vectorise.
// Torch-free, so that the test of every uniform (tests/aten/philox_exhaustive.cpp) builds alone.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace accel::philox {

struct Words {
  uint32_t r0, r1, r2, r3;
};

inline Words philox4x32(Words counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter.r0;
    const uint64_t b = uint64_t{0xCD9E8D57} * counter.r2;
    counter = {
        static_cast<uint32_t>(b >> 32) ^ counter.r1 ^ key0,
        static_cast<uint32_t>(b),
        static_cast<uint32_t>(a >> 32) ^ counter.r3 ^ key1,
        static_cast<uint32_t>(a)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

// The words of element i of the call with this key: tl.philox(key, low(i), high(i), 0, 0).
inline Words words(uint64_t key, uint64_t i) {
  return philox4x32(
      {static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 0, 0},
      static_cast<uint32_t>(key),
      static_cast<uint32_t>(key >> 32));
}

// The key of the call that finds a generator at (seed, offset).
inline uint64_t call_key(uint64_t seed, uint64_t offset) {
  const Words w = words(seed, offset);
  return w.r0 | uint64_t{w.r1} << 32;
}

// [0, 1 - 2^-24], Triton's uint_to_uniform_float.
inline float uniform(uint32_t word) {
  const auto x = static_cast<int32_t>(word);
  return static_cast<float>(x ^ (x >> 31)) *
      4.6566127342e-10f; // x ^ (x >> 31) == (x < 0 ? -x - 1 : x)
}

// A double and what its last addition lost: value + rest is the function to within 2^-58 of it.
struct Sum {
  double value, rest;
};

// The nearest float32 to a sum. Rounding `value` alone could go wrong where it lies in the middle
// of two floats, so it is made odd in its last bit first, on the side of `rest`.
inline float nearest_float(Sum sum) {
  const auto bits = std::bit_cast<uint64_t>(sum.value);
  const uint64_t inexact_even = (sum.rest != 0.0 ? 1 : 0) & ~bits;
  const uint64_t toward_zero = (bits ^ std::bit_cast<uint64_t>(sum.rest)) >> 63;
  return static_cast<float>(
      std::bit_cast<double>(bits + inexact_even - 2 * (inexact_even & toward_zero)));
}

// The natural logarithm of a positive normal float.
inline Sum log_sum(float x) {
  // x = 2^e * m with m in [sqrt(1/2), sqrt(2)), so that e == 0 around 1 and nothing cancels there.
  constexpr uint32_t kSqrtHalf = 0x3f3504f3;
  const uint32_t bits = std::bit_cast<uint32_t>(x) + (0x3f800000 - kSqrtHalf);
  const auto e = static_cast<double>(static_cast<int32_t>(bits >> 23) - 127);
  const auto m = std::bit_cast<float>((bits & 0x7fffff) + kSqrtHalf);
  // log(m) = 2 atanh(s) with s = f / (2 + f), |s| <= 0.172: the series ends below 2^-60. The
  // leading 24 bits of s and the rest are kept apart, so that what matters of the sum below is
  // exact before its last addition.
  const double f = static_cast<double>(m) - 1.0;
  const double d = 2.0 + f;
  const double inverse = 1.0 / d;
  const double s = f * inverse;
  const double s_high = static_cast<double>(static_cast<float>(s));
  const double s_low = (f - s_high * d) * inverse;
  const double z = s * s;
  double p = 1.0 / 23;
  p = p * z + 1.0 / 21;
  p = p * z + 1.0 / 19;
  p = p * z + 1.0 / 17;
  p = p * z + 1.0 / 15;
  p = p * z + 1.0 / 13;
  p = p * z + 1.0 / 11;
  p = p * z + 1.0 / 9;
  p = p * z + 1.0 / 7;
  p = p * z + 1.0 / 5;
  p = p * z + 1.0 / 3;
  // ln 2 in two parts; the product of the first with e is exact.
  const double high = e * 0x1.62e42fee00000p-1 + 2.0 * s_high;
  const double low = 2.0 * s_low + (2.0 * s * (z * p) + e * 0x1.a39ef35793c76p-33);
  const double value = high + low;
  return {value, (high - value) + low};
}

inline double log(float x) {
  return log_sum(x).value;
}

struct SinCos {
  double sin, cos;
};

// Both for |x| <= 8, within 2^-51 of their values.
inline SinCos sincos(double x) {
  // x = q * pi/2 + r with |r| <= pi/4; pi/2 in two parts, the product of the first with q is exact.
  // Adding 1.5 * 2^52 rounds to an integer.
  constexpr double kRound = 0x1.8p52;
  const double shifted = x * 0x1.45f306dc9c883p-1 + kRound;
  const double q = shifted - kRound;
  const double r = (x - q * 0x1.921fb54400000p+0) - q * 0x1.0b4611a626331p-34;
  const auto quadrant = std::bit_cast<uint64_t>(shifted); // q modulo 4, in the last two bits
  const double z = r * r;
  double s = 1.0 / 355687428096000.0; // 1 / 17!
  s = s * z - 1.0 / 1307674368000.0;
  s = s * z + 1.0 / 6227020800.0;
  s = s * z - 1.0 / 39916800.0;
  s = s * z + 1.0 / 362880.0;
  s = s * z - 1.0 / 5040.0;
  s = s * z + 1.0 / 120.0;
  s = s * z - 1.0 / 6.0;
  s = r + r * (z * s);
  double c = 1.0 / 6402373705728000.0; // 1 / 18!
  c = 1.0 / 20922789888000.0 - c * z;
  c = c * z - 1.0 / 87178291200.0;
  c = c * z + 1.0 / 479001600.0;
  c = c * z - 1.0 / 3628800.0;
  c = c * z + 1.0 / 40320.0;
  c = c * z - 1.0 / 720.0;
  c = c * z + 1.0 / 24.0;
  c = 1.0 - (0.5 * z - z * (z * c));
  const auto s_bits = std::bit_cast<uint64_t>(s);
  const auto c_bits = std::bit_cast<uint64_t>(c);
  const uint64_t swap = (s_bits ^ c_bits) & (0 - (quadrant & 1));
  return {
      std::bit_cast<double>((s_bits ^ swap) ^ (quadrant & 2) << 62),
      std::bit_cast<double>((c_bits ^ swap) ^ ((quadrant + 1) & 2) << 62)};
}

// e^x, within 2^-50 of its value; infinity and 0 beyond double's range.
inline double exp(double x) {
  constexpr double kRound = 0x1.8p52;
  x = x < -800.0 ? -800.0 : (x > 800.0 ? 800.0 : x);
  const double n = (x * 0x1.71547652b82fep+0 + kRound) - kRound;
  const double r = (x - n * 0x1.62e42fee00000p-1) - n * 0x1.a39ef35793c76p-33;
  double p = 1.0 / 6227020800.0; // 1 / 13!
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = 1.0 + (r + r * r * p);
  return std::ldexp(p, static_cast<int>(n));
}

// Triton's pair_uniform_to_normal (Box-Muller), first component: radius(positive_uniform(r0)) *
// cosine(r1).
inline float positive_uniform(uint32_t word) {
  const float u = uniform(word);
  return u < 1.0e-7f ? 1.0e-7f : u;
}

inline float radius(float u) {
  return std::sqrt(-2.0f * nearest_float(log_sum(u)));
}

inline float cosine(uint32_t word) {
  return static_cast<float>(sincos(6.283185307179586f * uniform(word)).cos);
}

} // namespace accel::philox
