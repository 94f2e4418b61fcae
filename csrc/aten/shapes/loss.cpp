// Loss functions and their gradients.
#include <ATen/ExpandUtils.h>
#include <ATen/core/Reduction.h>
#include <ATen/native/LossMulti.h>

#include "iterate.h"

namespace accel {

namespace {

Outputs scalar(at::ScalarType dtype) {
  return outputs(make({}, dtype));
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type();
}

// What the gradient of a loss over `elements` that were reduced or not may be.
bool is_gradient(const at::Tensor& grad, int64_t reduction, at::IntArrayRef elements) {
  return reduction == at::Reduction::None ? grad.sizes() == elements
                                          : grad.dim() <= 1 && grad.numel() == 1;
}

// ---- Elementwise losses

Outputs binary_cross_entropy(
    const at::Tensor& self,
    const at::Tensor& target,
    const at::Tensor& weight,
    int64_t reduction) {
  if (!same(self, target) ||
      (weight.defined() &&
       (weight.scalar_type() != self.scalar_type() ||
        !at::is_expandable_to(weight.sizes(), self.sizes())))) {
    return decline();
  }
  return reduction == at::Reduction::None ? outputs(make_like(self)) : scalar(self.scalar_type());
}

Outputs binary_cross_entropy_backward(
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& target,
    const at::Tensor& weight,
    int64_t) {
  if (!same(self, target) || grad.scalar_type() != self.scalar_type() ||
      !at::is_expandable_to(grad.sizes(), self.sizes()) ||
      (weight.defined() &&
       (weight.scalar_type() != self.scalar_type() ||
        !at::is_expandable_to(weight.sizes(), self.sizes())))) {
    return decline();
  }
  return outputs(make_like(self));
}

Outputs
huber_loss(const at::Tensor& self, const at::Tensor& target, int64_t reduction, double delta) {
  if (!(delta > 0) || self.scalar_type() != target.scalar_type()) {
    return decline();
  }
  auto elements = elementwise({self, target});
  return reduction == at::Reduction::None ? elements : scalar(self.scalar_type());
}

// In the sizes of `self`: a broadcast result would be another's gradient.
Outputs
elementwise_backward(const at::Tensor& grad, const at::Tensor& self, const at::Tensor& target) {
  const bool fits = target.scalar_type() == self.scalar_type() &&
      grad.scalar_type() == self.scalar_type() &&
      at::is_expandable_to(target.sizes(), self.sizes()) &&
      at::is_expandable_to(grad.sizes(), self.sizes());
  return fits ? outputs(make(self.sizes(), self.scalar_type())) : decline();
}

// ---- Losses over classes

Outputs nll_loss2d(
    const at::Tensor& self,
    const at::Tensor& target,
    const at::Tensor& weight,
    int64_t reduction) {
  if (self.dim() != 4 || target.dim() != 3 || self.size(0) != target.size(0) ||
      self.size(2) != target.size(1) || self.size(3) != target.size(2) ||
      target.scalar_type() != at::kLong ||
      (weight.defined() &&
       (weight.numel() != self.size(1) || weight.scalar_type() != self.scalar_type()))) {
    return decline();
  }
  const auto dtype = self.scalar_type();
  return reduction == at::Reduction::None ? outputs(make(target.sizes(), dtype), make({}, dtype))
                                          : outputs(make({}, dtype), make({}, dtype));
}

Outputs nll_loss2d_backward(
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& target,
    const at::Tensor& weight,
    int64_t reduction,
    int64_t,
    const at::Tensor& total_weight) {
  if (!nll_loss2d(self, target, weight, reduction) || !self.is_contiguous() ||
      grad.scalar_type() != self.scalar_type() || !is_gradient(grad, reduction, target.sizes()) ||
      total_weight.numel() != 1 || total_weight.scalar_type() != self.scalar_type()) {
    return decline();
  }
  return outputs(make(self.sizes(), self.scalar_type()));
}

// What the loss has before a reduction: a value for each sample.
at::DimVector per_sample(const at::Tensor& self, const at::Tensor& target, int64_t min_dim) {
  return target.dim() >= min_dim ? at::DimVector{self.dim() == 2 ? self.size(0) : 1}
                                 : at::DimVector{};
}

bool is_multi_margin(
    const at::Tensor& self,
    const at::Tensor& target,
    const at::Scalar& p,
    const at::Tensor& weight) {
  int64_t samples = 0, classes = 0;
  at::native::multi_margin_loss_shape_check(samples, classes, self.dim(), self, target, weight);
  return (p.equal(1) || p.equal(2)) && target.scalar_type() == at::kLong &&
      (!weight.defined() || weight.scalar_type() == self.scalar_type());
}

Outputs multi_margin_loss(
    const at::Tensor& self,
    const at::Tensor& target,
    at::Scalar p,
    at::Scalar,
    const at::Tensor& weight,
    int64_t reduction) {
  if (!is_multi_margin(self, target, p, weight)) {
    return decline();
  }
  return reduction == at::Reduction::None
      ? outputs(make(per_sample(self, target, 1), self.scalar_type()))
      : scalar(self.scalar_type());
}

Outputs multi_margin_loss_backward(
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& target,
    at::Scalar p,
    at::Scalar,
    const at::Tensor& weight,
    int64_t reduction) {
  if (!is_multi_margin(self, target, p, weight) || grad.scalar_type() != self.scalar_type() ||
      !is_gradient(grad, reduction, per_sample(self, target, 1))) {
    return decline();
  }
  return outputs(make(self.sizes(), self.scalar_type()));
}

bool is_multilabel_margin(const at::Tensor& self, const at::Tensor& target) {
  int64_t samples = 0, classes = 0;
  at::native::multilabel_margin_loss_shape_check(samples, classes, self.dim(), self, target);
  return target.scalar_type() == at::kLong;
}

Outputs
multilabel_margin_loss(const at::Tensor& self, const at::Tensor& target, int64_t reduction) {
  if (!is_multilabel_margin(self, target)) {
    return decline();
  }
  const auto dtype = self.scalar_type();
  auto loss =
      reduction == at::Reduction::None ? make(per_sample(self, target, 2), dtype) : make({}, dtype);
  return outputs(std::move(loss), make(target.sizes(), dtype));
}

Outputs multilabel_margin_loss_backward(
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& target,
    int64_t reduction,
    const at::Tensor& is_target) {
  if (!is_multilabel_margin(self, target) || grad.scalar_type() != self.scalar_type() ||
      !is_gradient(grad, reduction, per_sample(self, target, 2)) ||
      is_target.sizes() != target.sizes() || is_target.scalar_type() != self.scalar_type()) {
    return decline();
  }
  return outputs(make(self.sizes(), self.scalar_type()));
}

// ---- Distances

Outputs cdist(const at::Tensor& a, const at::Tensor& b, double p, std::optional<int64_t> mode) {
  if (a.dim() < 2 || b.dim() < 2 || a.size(-1) != b.size(-1) || !(p >= 0) ||
      a.scalar_type() != b.scalar_type() || !c10::isFloatingType(a.scalar_type()) ||
      mode.value_or(0) < 0 || mode.value_or(0) > 2) {
    return decline();
  }
  auto sizes =
      at::infer_size_dimvector(a.sizes().slice(0, a.dim() - 2), b.sizes().slice(0, b.dim() - 2));
  sizes.push_back(a.size(-2));
  sizes.push_back(b.size(-2));
  return outputs(make(sizes, a.scalar_type()));
}

Outputs cdist_backward(
    const at::Tensor& grad,
    const at::Tensor& a,
    const at::Tensor& b,
    double p,
    const at::Tensor& distances) {
  const auto forward = cdist(a, b, p, std::nullopt);
  if (forward && (a.numel() == 0 || b.numel() == 0)) {
    return outputs(make(a.sizes(), a.scalar_type())); // as it was before it was broadcast
  }
  if (!forward || !same(grad, (*forward)[0]) || !same(distances, grad) || !a.is_contiguous() ||
      !b.is_contiguous() || !grad.is_contiguous() || !distances.is_contiguous()) {
    return decline();
  }
  at::DimVector sizes(grad.sizes());
  sizes.back() = a.size(-1);
  return outputs(make(sizes, a.scalar_type()));
}

Outputs pdist(const at::Tensor& self, double p) {
  if (self.dim() != 2 || !self.is_contiguous() || !(p >= 0) ||
      !c10::isFloatingType(self.scalar_type())) {
    return decline();
  }
  const int64_t n = self.size(0);
  return outputs(make({n <= 1 ? 0 : n * (n - 1) / 2}, self.scalar_type()));
}

Outputs pdist_backward(
    const at::Tensor& grad,
    const at::Tensor& self,
    double p,
    const at::Tensor& distances) {
  const auto forward = pdist(self, p);
  if (!forward || !same(grad, (*forward)[0]) || !same(distances, grad) ||
      !distances.is_contiguous()) {
    return decline();
  }
  return outputs(make(self.sizes(), self.scalar_type()));
}

int64_t distance_flops(Arguments arguments, at::TensorList outputs) {
  const auto& points = arguments[0].toTensor();
  return points.dim() == 0 ? -1 : 3 * outputs[0].numel() * points.size(-1);
}

int64_t distance_gradient_flops(Arguments arguments, at::TensorList) {
  const auto& points = arguments[1].toTensor();
  return points.dim() == 0 ? -1 : 5 * arguments[0].toTensor().numel() * points.size(-1);
}

// Into an output these kernels write all elements, and shrink it to the reduced value in the end;
// some do not resize it.
template <Outputs (*loss)(Arguments), size_t reduction, size_t out>
Outputs unreduced(Arguments arguments) {
  const bool plain = arguments[reduction].toInt() == at::Reduction::None &&
      arguments[out].toTensor().sizes() == arguments[0].toTensor().sizes();
  return plain ? loss(arguments) : decline();
}

// ---- Rows

const ShapeRow kRows[] = {
    {"_cdist_backward", shape<cdist_backward>, distance_gradient_flops},
    {"_cdist_forward", shape<cdist>, distance_flops},
    {"_pdist_backward", shape<pdist_backward>, distance_gradient_flops},
    {"_pdist_forward", shape<pdist>, distance_flops},
    {"binary_cross_entropy", shape<binary_cross_entropy>, per_input<6>},
    {"binary_cross_entropy.out", unreduced<shape<binary_cross_entropy>, 3, 4>, per_input<6>},
    {"binary_cross_entropy_backward", shape<binary_cross_entropy_backward>, per_input<5, 1>},
    {"binary_cross_entropy_backward.grad_input",
     shape<binary_cross_entropy_backward>,
     per_input<5, 1>},
    {"huber_loss", shape<huber_loss>, per_input<5>},
    {"huber_loss.out", unreduced<shape<huber_loss>, 2, 4>, per_input<5>},
    {"huber_loss_backward.out", shape<elementwise_backward>, per_input<4, 1>},
    {"mse_loss_backward", shape<elementwise_backward>, per_input<3, 1>},
    {"mse_loss_backward.grad_input", shape<elementwise_backward>, per_input<3, 1>},
    {"multi_margin_loss", shape<multi_margin_loss>, per_input<3>},
    {"multi_margin_loss.out", shape<multi_margin_loss>, per_input<3>},
    {"multi_margin_loss_backward", shape<multi_margin_loss_backward>, per_input<3, 1>},
    {"multi_margin_loss_backward.grad_input", shape<multi_margin_loss_backward>, per_input<3, 1>},
    {"multilabel_margin_loss_backward", shape<multilabel_margin_loss_backward>, unknown_flops},
    {"multilabel_margin_loss_backward.grad_input",
     shape<multilabel_margin_loss_backward>,
     unknown_flops},
    {"multilabel_margin_loss_forward", shape<multilabel_margin_loss>, unknown_flops},
    {"multilabel_margin_loss_forward.output", shape<multilabel_margin_loss>, unknown_flops},
    {"nll_loss2d_backward", shape<nll_loss2d_backward>, per_input<1, 2>},
    {"nll_loss2d_backward.grad_input", shape<nll_loss2d_backward>, per_input<1, 2>},
    {"nll_loss2d_forward", shape<nll_loss2d>, per_input<2, 1>},
    {"nll_loss2d_forward.output", shape<nll_loss2d>, per_input<2, 1>},
    {"smooth_l1_loss_backward.grad_input", shape<elementwise_backward>, per_input<4, 1>},
};

} // namespace

c10::ArrayRef<ShapeRow> loss_rows() {
  return kRows;
}

} // namespace accel
