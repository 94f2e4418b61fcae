// Activation functions, dropout and their gradients.
#include "../shapes.h"

namespace accel {

c10::ArrayRef<ShapeRow> activation_rows() {
  return {};
}

} // namespace accel
