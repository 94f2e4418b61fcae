// Activation functions, dropout and their gradients.
#include <ATen/ExpandUtils.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/WrapDimMinimal.h>

#include "iterate.h"

namespace accel {

namespace {

// ---- Shape functions

Outputs iterated(const at::Tensor& self) {
  return elementwise({self});
}

Outputs iterated_binary(const at::Tensor& a, const at::Tensor& b) {
  return elementwise({a, b});
}

Outputs like(const at::Tensor& self) {
  return outputs(make_like(self));
}

Outputs inplace(const at::Tensor&) {
  return outputs();
}

Outputs two_of(Outputs one) {
  one->push_back(make_like((*one)[0]));
  return one;
}

// The kernel refuses bool, and negative limits of unsigned integers.
bool has_hardtanh(const at::Tensor& self) {
  return self.scalar_type() != at::kBool && self.scalar_type() != at::kByte;
}

Outputs hardtanh(const at::Tensor& self) {
  return has_hardtanh(self) ? elementwise({self}) : decline();
}

Outputs hardtanh_(const at::Tensor& self) {
  return has_hardtanh(self) ? outputs() : decline();
}

// Integers become the default floating dtype.
Outputs prelu(const at::Tensor& self, const at::Tensor& weight) {
  return weight.scalar_type() == self.scalar_type() &&
          at::infer_size(self.sizes(), weight.sizes()) == self.sizes()
      ? outputs(make_like(self))
      : decline();
}

Outputs prelu_backward(const at::Tensor& grad, const at::Tensor& self, const at::Tensor& weight) {
  if (weight.scalar_type() != self.scalar_type() || grad.scalar_type() != self.scalar_type()) {
    return decline();
  }
  return two_of(elementwise({self, weight, grad}));
}

Outputs log_sigmoid(const at::Tensor& self) {
  return outputs(make(self.sizes(), self.scalar_type()), make(self.sizes(), self.scalar_type()));
}

Outputs log_sigmoid_out(const at::Tensor& self, const at::Tensor&, const at::Tensor& buffer) {
  return buffer.is_contiguous() ? log_sigmoid(self) : decline();
}

Outputs
log_sigmoid_backward(const at::Tensor& grad, const at::Tensor& self, const at::Tensor& buffer) {
  const bool fits = self.sizes() == grad.sizes() && buffer.sizes() == grad.sizes() &&
      self.scalar_type() == grad.scalar_type() && buffer.scalar_type() == grad.scalar_type();
  return fits ? like(grad) : decline();
}

// The two halves of `self` along `dim` have the sizes of `half`.
bool halves(const at::Tensor& self, const at::Tensor& half, int64_t dim) {
  if (self.dim() == 0 || half.dim() != self.dim() || dim < -self.dim() || dim >= self.dim() ||
      half.scalar_type() != self.scalar_type()) {
    return false;
  }
  at::DimVector sizes(half.sizes());
  sizes[c10::maybe_wrap_dim(dim, self.dim())] *= 2;
  return self.sizes() == sizes;
}

Outputs glu_backward(const at::Tensor& grad, const at::Tensor& self, int64_t dim) {
  return halves(self, grad, dim) ? outputs(make(self.sizes(), self.scalar_type())) : decline();
}

Outputs glu_jvp(const at::Tensor& glu, const at::Tensor& x, const at::Tensor& dx, int64_t dim) {
  return halves(x, glu, dim) && halves(dx, glu, dim) ? like(glu) : decline();
}

Outputs glu_backward_jvp(
    const at::Tensor& grad_x,
    const at::Tensor& grad_glu,
    const at::Tensor& x,
    const at::Tensor& dgrad_glu,
    const at::Tensor& dx,
    int64_t dim) {
  if (!halves(x, grad_glu, dim) || !halves(grad_x, grad_glu, dim) || !halves(dx, grad_glu, dim) ||
      dgrad_glu.sizes() != grad_glu.sizes() || dgrad_glu.scalar_type() != x.scalar_type()) {
    return decline();
  }
  return outputs(make(grad_x.sizes(), grad_x.scalar_type()));
}

// Whether the mask has the shape that its type asks for.
bool masks_softmax(const at::Tensor& self, const at::Tensor& mask, int64_t type, int64_t dim) {
  enum : int64_t { kOfScores, kOfKeys, kGeneral }; // (L, L), (B, L), as the input (B, H, L, L)
  if (type == kGeneral) {
    return mask.sizes() == self.sizes();
  }
  return self.dim() == 4 && mask.dim() == 2 && (dim == 3 || dim == -1) &&
      self.size(2) == self.size(3) && mask.size(1) == self.size(3) &&
      ((type == kOfScores && mask.size(0) == self.size(2)) ||
       (type == kOfKeys && mask.size(0) == self.size(0)));
}

Outputs masked_softmax(
    const at::Tensor& self,
    const at::Tensor& mask,
    std::optional<int64_t> dim,
    std::optional<int64_t> mask_type) {
  const int64_t rank = std::max<int64_t>(self.dim(), 1);
  const bool fits = mask.scalar_type() == at::kBool && mask_type &&
      masks_softmax(self, mask, *mask_type, dim.value_or(-1)) &&
      (!dim || (*dim >= -rank && *dim < rank));
  return fits ? like(self) : decline();
}

Outputs masked_softmax_backward(
    const at::Tensor& grad,
    const at::Tensor& output,
    const at::Tensor& mask,
    std::optional<int64_t> dim) {
  const int64_t rank = std::max<int64_t>(grad.dim(), 1);
  const bool fits = mask.scalar_type() == at::kBool && mask.sizes() == grad.sizes() &&
      output.sizes() == grad.sizes() && output.scalar_type() == grad.scalar_type() &&
      (!dim || (*dim >= -rank && *dim < rank));
  return fits ? like(grad) : decline();
}

// ---- Rows

const ShapeRow kRows[] = {
    {"_masked_softmax", shape<masked_softmax>, per_output<4>},
    {"_masked_softmax_backward", shape<masked_softmax_backward>, per_output<4>},
    {"_prelu_kernel", shape<prelu>, per_output<2>},
    {"_prelu_kernel_backward", shape<prelu_backward>, per_input<3>},
    {"glu_backward", shape<glu_backward>, per_output<5>},
    {"glu_backward.grad_input", shape<glu_backward>, per_input<5, 1>},
    {"glu_backward_jvp", shape<glu_backward_jvp>, per_output<10>},
    {"glu_jvp", shape<glu_jvp>, per_output<5>},
    {"hardswish", shape<iterated>, per_output<5>},
    {"hardswish.out", shape<iterated>, per_input<5>},
    {"hardswish_", shape<inplace>, per_input<5>},
    {"hardswish_backward", shape<iterated_binary>, per_output<5>},
    {"hardtanh.out", shape<hardtanh>, per_input<2>},
    {"hardtanh_", shape<hardtanh_>, per_input<2>},
    {"hardtanh_backward", shape<iterated_binary>, per_output<3>},
    {"hardtanh_backward.grad_input", shape<iterated_binary>, per_input<3>},
    {"log_sigmoid_backward", shape<log_sigmoid_backward>, per_output<6>},
    {"log_sigmoid_backward.grad_input", shape<log_sigmoid_backward>, per_input<6>},
    {"log_sigmoid_forward", shape<log_sigmoid>, per_input<5>},
    {"log_sigmoid_forward.output", shape<log_sigmoid_out>, per_input<5>},
    {"mish_backward", shape<iterated_binary>, per_output<10>},
};

} // namespace

c10::ArrayRef<ShapeRow> activation_rows() {
  return kRows;
}

} // namespace accel
