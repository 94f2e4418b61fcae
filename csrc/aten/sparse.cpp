// Sparse COO tensors, beyond the CPU's kernels: sums are queued, both dense + sparse (what an
// optimizer step does) and the sum of two sparse gradients. They equal the CPU's, coalesced or
// dense, bit for bit.
#include <ATen/core/Tensor.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors.h>
#include <ATen/ops/_to_copy_native.h>
#include <ATen/ops/add.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/result_type.h>
#include <torch/library.h>

#include "fallback.h"
#include "sparse_padding.h"
#include "structured.h"

namespace accel {

namespace {

// What a kernel needs to make a sparse tensor of two aliases again.
class PackedCoo {
 public:
  explicit PackedCoo(const at::Tensor& tensor)
      : sizes_(tensor.sizes()),
        sparse_dim_(tensor.sparse_dim()),
        coalesced_(tensor.is_coalesced()) {}
  bool fits() const {
    return sizes_.fits();
  }
  at::Tensor unpack(const at::Tensor& indices, const at::Tensor& values) const {
    const auto sizes = sizes_.unpack();
    return at::_sparse_coo_tensor_with_dims_and_tensors(
        sparse_dim_,
        static_cast<int64_t>(sizes.size()) - sparse_dim_,
        sizes,
        indices,
        values,
        values.options().layout(c10::kSparse),
        coalesced_);
  }

 private:
  PackedInts sizes_;
  int64_t sparse_dim_;
  bool coalesced_;
};

bool on_one_device(const at::Tensor& self, const at::Tensor& other, const at::Tensor& out) {
  return self.device() == out.device() && other.device() == out.device();
}

bool can_queue(
    const at::Tensor& self,
    const at::Tensor& other,
    const at::Scalar& alpha,
    const at::Tensor& out) {
  const auto dtype = at::result_type(self, other);
  return on_one_device(self, other, out) && other.is_sparse() && self.sizes() == other.sizes() &&
      at::canCast(dtype, out.scalar_type()) && (!alpha.isComplex() || at::isComplexType(dtype)) &&
      (!alpha.isBoolean() || dtype == at::kBool) &&
      (!alpha.isFloatingPoint() || !at::isIntegralType(dtype, /*includeBool=*/true)) &&
      other._nnz() > 0;
}

// dense + alpha * sparse.
void launch_dense(
    const at::Tensor& self,
    const at::Tensor& other,
    const at::Scalar& alpha,
    const at::Tensor& out) {
  out.resize_as_(self);
  const auto kernel = [scalar = pack(alpha), coo = PackedCoo(other)](at::TensorList t) {
    auto result = t[0];
    at::add_out(result, t[1], coo.unpack(t[2], t[3]), scalar.unpack());
  };
  launch_operator(
      "add", {writes(out), reads(self), reads(other._indices()), reads(other._values())}, kernel);
}

// Integers have no -0.0 to mark spare room with, and are no gradients.
bool can_mark(const at::Tensor& tensor) {
  return tensor.is_floating_point() || tensor.is_complex();
}

// sparse + alpha * sparse.
void launch_sparse(
    const at::Tensor& self,
    const at::Tensor& other,
    const at::Scalar& alpha,
    const at::Tensor& out) {
  const auto room = self._nnz() + other._nnz();
  auto shape = other._values().sizes().vec();
  shape[0] = room;
  const auto indices = at::empty({self.sparse_dim(), room}, self._indices().options());
  const auto values = at::empty(shape, out._values().options());
  const auto kernel =
      [scalar = pack(alpha), a = PackedCoo(self), b = PackedCoo(other)](at::TensorList t) {
        const auto left = a.unpack(t[2], t[3]);
        const auto right = b.unpack(t[4], t[5]);
        cut_padding(left);
        cut_padding(right);
        copy_with_padding(at::add(left, right, scalar.unpack()), t[0], t[1]);
      };
  launch_operator(
      "add",
      {writes(indices),
       writes(values),
       reads(self._indices()),
       reads(self._values()),
       reads(other._indices()),
       reads(other._values())},
      kernel);
  auto* const impl = at::sparse::get_sparse_impl(out);
  impl->raw_resize_(self.sparse_dim(), self.dense_dim(), self.sizes());
  impl->set_indices_and_values_unsafe(indices, values);
  impl->set_coalesced(false);
}

// Everything else, errors among it, is the CPU kernel's.
void add_out(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto arguments = torch::jit::last(*stack, 4);
  const auto self = arguments[0].toTensor();
  const auto other = arguments[1].toTensor();
  const auto alpha = arguments[2].toScalar();
  const auto out = arguments[3].toTensor();
  if (!can_queue(self, other, alpha, out) || !PackedCoo(other).fits()) {
    return fallback(op, keys, stack);
  }
  if (self.layout() == c10::kStrided && out.layout() == c10::kStrided) {
    launch_dense(self, other, alpha, out);
  } else if (
      self.is_sparse() && out.is_sparse() && !(self.is_coalesced() && other.is_coalesced()) &&
      self._nnz() > 0 && can_mark(out) && at::sparse::is_same_density(self, other)) {
    launch_sparse(self, other, alpha, out);
  } else {
    return fallback(op, keys, stack);
  }
  torch::jit::drop(*stack, 4);
  stack->emplace_back(out);
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  at::native::copy_sparse_wrapper_(self, src, non_blocking);
  if (self.is_cpu() && self.is_sparse() && !non_blocking) {
    cut_padding(self);
  }
  return self;
}

at::Tensor to_copy(
    const at::Tensor& self,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pin_memory,
    bool non_blocking,
    std::optional<c10::MemoryFormat> memory_format) {
  auto copy =
      at::native::_to_copy(self, dtype, layout, device, pin_memory, non_blocking, memory_format);
  if (copy.is_cpu() && copy.is_sparse() && !non_blocking) {
    cut_padding(copy);
  }
  return copy;
}

} // namespace

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("_to_copy", TORCH_FN(to_copy));
  m.impl("copy_", TORCH_FN(copy_));
  m.impl("add.out", torch::CppFunction::makeFromBoxedFunction<&add_out>());
}

} // namespace accel
