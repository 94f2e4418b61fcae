// Normalisations and their gradients.
#include "../shapes.h"

namespace accel {

c10::ArrayRef<ShapeRow> normalization_rows() {
  return {};
}

} // namespace accel
