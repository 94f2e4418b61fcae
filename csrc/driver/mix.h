// Numbers that look random: splitmix64's finaliser.
#pragma once

#include <cstdint>

namespace accel::driver {

inline uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

} // namespace accel::driver
