// Operators over lists of tensors: one launch a list.
#include "../shapes.h"

namespace accel {

c10::ArrayRef<ShapeRow> foreach_rows() {
  return {};
}

} // namespace accel
