#include "scalar_value.h"

#include <ATen/Dispatch_v2.h>

namespace accel {

void check_convertible(const at::Scalar& value, at::ScalarType dtype) {
  AT_DISPATCH_V2(
      dtype,
      "fill_",
      AT_WRAP([&] { (void)value.to<scalar_t>(); }),
      AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX),
      at::kComplexHalf,
      at::kHalf,
      at::kBool,
      at::kBFloat16,
      AT_EXPAND(AT_FLOAT8_TYPES),
      AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES));
}

} // namespace accel
