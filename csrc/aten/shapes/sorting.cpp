// Order statistics and searches.
#include "../shapes.h"

namespace accel {

c10::ArrayRef<ShapeRow> sorting_rows() {
  return {};
}

} // namespace accel
