// Reading and writing by position or mask.
#include "../shapes.h"

namespace accel {

c10::ArrayRef<ShapeRow> indexing_rows() {
  return {};
}

} // namespace accel
