// Checks csrc/runtime/philox.h against long double for every STRIDE-th (argument, default 1) of the
// 2^31 words that give different uniforms, and prints Random123's known answers. Exit status 1 on a
// difference. Built and run by test_random_philox.py with a stride; `g++ -std=c++20 -O3
// -ffp-contract=off -Icsrc` and no argument for all.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>

#include "runtime/philox.h"

int main(int argc, char** argv) {
  namespace philox = accel::philox;
  const uint64_t stride = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  long distinct = 0;
  long wrong_log = 0;
  long wrong_cos = 0;
  float previous = -1.0f;
  for (uint64_t word = 0; word < (uint64_t{1} << 31); word += stride) {
    const float u = philox::uniform(static_cast<uint32_t>(word));
    if (u == previous) {
      continue;
    }
    previous = u;
    ++distinct;
    const float u1 = philox::positive_uniform(static_cast<uint32_t>(word));
    wrong_log += philox::nearest_float(philox::log_sum(u1)) !=
        static_cast<float>(std::log(static_cast<long double>(u1)));
    const float theta = 6.283185307179586f * u;
    wrong_cos += static_cast<float>(philox::sincos(theta).cos) !=
        static_cast<float>(std::cos(static_cast<long double>(theta)));
  }
  std::printf(
      "%ld uniforms: %ld logarithms and %ld cosines not correctly rounded\n",
      distinct,
      wrong_log,
      wrong_cos);
  for (const uint32_t x : {0u, ~0u}) {
    const philox::Words w = philox::philox4x32({x, x, x, x}, x, x);
    std::printf("%08x %08x %08x %08x\n", w.r0, w.r1, w.r2, w.r3);
  }
  return wrong_log + wrong_cos == 0 ? 0 : 1;
}
