// Loss functions and their gradients.
#include "../shapes.h"

namespace accel {

c10::ArrayRef<ShapeRow> loss_rows() {
  return {};
}

} // namespace accel
