// Pooling, unpooling, sampling and padding, and their gradients.
#include "../shapes.h"

namespace accel {

c10::ArrayRef<ShapeRow> pooling_rows() {
  return {};
}

} // namespace accel
