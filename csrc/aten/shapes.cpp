#include "shapes.h"

namespace accel {

std::vector<ShapeRow> shape_rows() {
  std::vector<ShapeRow> rows;
  for (const auto& family :
       {activation_rows(),
        attention_rows(),
        convolution_rows(),
        embedding_rows(),
        factory_rows(),
        fft_rows(),
        foreach_rows(),
        indexing_rows(),
        linalg_rows(),
        loss_rows(),
        movement_rows(),
        normalization_rows(),
        optimizer_rows(),
        pointwise_rows(),
        pooling_rows(),
        reduction_rows(),
        sorting_rows()}) {
    rows.insert(rows.end(), family.begin(), family.end());
  }
  return rows;
}

} // namespace accel
