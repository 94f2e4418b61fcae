// Steps of optimizers over whole lists of parameters, and the scaling of gradients.
#include "../arguments.h"
#include "../shapes.h"

namespace accel {

namespace {

// Where the schema of a fused step has its lists (the first ones, the parameters at their head), a
// list that may be empty, and grad_scale, which found_inf follows.
struct Layout {
  size_t lists;
  size_t optional; // 0: none
  size_t grad_scale;
};

Outputs step(Arguments arguments, const Layout& layout, bool has_optional) {
  const auto size = [&](size_t i) { return arguments[i].toListRef().size(); };
  for (size_t i = 0; i < layout.lists; ++i) {
    const bool filled = i != layout.optional || i == 0 || has_optional;
    if (size(i) != (filled ? size(0) : 0)) {
      return decline();
    }
  }
  for (const size_t i : {layout.grad_scale, layout.grad_scale + 1}) {
    if (arguments[i].isTensor() && arguments[i].toTensor().scalar_type() != at::kFloat) {
      return decline();
    }
  }
  return outputs();
}

// Adam and AdamW: amsgrad is argument 11.
Outputs adam(Arguments arguments) {
  return step(arguments, {6, 4, 13}, arguments[11].toBool());
}
// momentum is argument 4.
Outputs sgd(Arguments arguments) {
  return step(arguments, {3, 2, 10}, arguments[4].toDouble() != 0);
}
Outputs adagrad(Arguments arguments) {
  return step(arguments, {4, 0, 9}, true);
}

bool one(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.numel() == 1 && tensor.scalar_type() == dtype;
}

Outputs unscale(at::TensorList, const at::Tensor& found_inf, const at::Tensor& inverse_scale) {
  return one(found_inf, at::kFloat) && one(inverse_scale, at::kFloat) ? outputs() : decline();
}

Outputs update_scale(
    const at::Tensor& scale,
    const at::Tensor& growth_tracker,
    const at::Tensor& found_inf) {
  return one(scale, at::kFloat) && one(growth_tracker, at::kInt) && one(found_inf, at::kFloat)
      ? outputs()
      : decline();
}

template <int each>
int64_t per_parameter(Arguments arguments, at::TensorList) {
  int64_t elements = 0;
  for_each_tensor(arguments[0], [&](const at::Tensor& tensor) { elements += tensor.numel(); });
  return each * elements;
}

const ShapeRow kRows[] = {
    {"_amp_foreach_non_finite_check_and_unscale_", shape<unscale>, per_parameter<1>},
    {"_amp_update_scale_", shape<update_scale>, unknown_flops},
    {"_fused_adagrad_", adagrad, per_parameter<8>},
    {"_fused_adagrad_.tensor_lr", adagrad, per_parameter<8>},
    {"_fused_adam_", adam, per_parameter<14>},
    {"_fused_adam_.tensor_lr", adam, per_parameter<14>},
    {"_fused_adamw_", adam, per_parameter<14>},
    {"_fused_adamw_.tensor_lr", adam, per_parameter<14>},
    {"_fused_sgd_", sgd, per_parameter<6>},
    {"_fused_sgd_.tensor_lr", sgd, per_parameter<6>},
};

} // namespace

c10::ArrayRef<ShapeRow> optimizer_rows() {
  return kRows;
}

} // namespace accel
