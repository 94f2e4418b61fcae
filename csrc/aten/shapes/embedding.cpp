// Embeddings, bags of them, and their gradients.
#include "../shapes.h"

namespace accel {

c10::ArrayRef<ShapeRow> embedding_rows() {
  return {};
}

} // namespace accel
