// Convolutions and their gradients, im2col and col2im.
#include "../shapes.h"

namespace accel {

c10::ArrayRef<ShapeRow> convolution_rows() {
  return {};
}

} // namespace accel
