// Tensors that are computed from scalars.
#include "../shapes.h"

namespace accel {

c10::ArrayRef<ShapeRow> factory_rows() {
  return {};
}

} // namespace accel
