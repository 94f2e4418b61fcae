// Support for the generated operators (codegen/generate.py).
//
// An operator is three things: its meta function, which computes dtypes, sizes and strides on the
// host and asks for outputs; one launch; and the CPU's kernel `at::cpu::X_outf`, which the worker
// runs on the aliases. Functional, in-place and out= forms differ only in where outputs come from.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/op_registration/adaption.h>

#include <array>
#include <initializer_list>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "../runtime/device.h"
#include "../runtime/warning.h"
#include "dry_run.h"
#include "host_checks.h"
#include "launch.h"
#include "packed.h"

namespace accel {

namespace detail {

at::Tensor
create_output(at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options);
void check_inplace(const at::Tensor& self, at::IntArrayRef sizes, const at::TensorOptions& options);
void resize_out(
    const at::Tensor& out,
    at::IntArrayRef sizes,
    at::IntArrayRef strides,
    const at::TensorOptions& options);
// On the current stream of the first operand's device. Unless `fits`, the kernel refers to the
// caller's variables, and the caller waits.
void launch_operator(
    const char* name,
    c10::ArrayRef<Operand> operands,
    Run run,
    const void* kernel,
    size_t kernel_bytes,
    Scalars scalars,
    bool fits);

// The outputs of a functional call: made as the meta function asks.
template <size_t N>
class Created {
 public:
  void set(
      int64_t index,
      at::IntArrayRef sizes,
      at::IntArrayRef strides,
      const at::TensorOptions& options) {
    tensors_[index] = create_output(sizes, strides, options);
  }
  const at::Tensor& operator[](int64_t index) const {
    return tensors_[index];
  }
  auto take() {
    return std::apply(
        [](auto&... tensors) {
          if constexpr (N == 1) {
            return at::Tensor(std::move(tensors)...);
          } else {
            return std::make_tuple(std::move(tensors)...);
          }
        },
        tensors_);
  }

 private:
  std::array<at::Tensor, N> tensors_;
};

// The output of an in-place call: what the meta function asks for must be what there is.
class Updated {
 public:
  explicit Updated(const at::Tensor& self) : self_(self) {}
  void set(int64_t, at::IntArrayRef sizes, at::IntArrayRef, const at::TensorOptions& options)
      const {
    check_inplace(self_, sizes, options);
  }
  const at::Tensor& operator[](int64_t) const {
    return self_;
  }

 private:
  const at::Tensor& self_;
};

// The outputs of an out= call: resized, with torch's warning. Where a kernel wants other strides
// than they have, at::cpu::X_outf makes the proxy and copies from it, so the host needs none.
template <size_t N>
class Given {
 public:
  template <class... Tensors>
  explicit Given(const Tensors&... tensors) : tensors_{&tensors...} {}
  void set(
      int64_t index,
      at::IntArrayRef sizes,
      at::IntArrayRef strides,
      const at::TensorOptions& options) const {
    resize_out(*tensors_[index], sizes, strides, options);
  }
  const at::Tensor& operator[](int64_t index) const {
    return *tensors_[index];
  }

 private:
  std::array<const at::Tensor*, N> tensors_;
};

// The meta function of an operator with a source of outputs.
template <class Meta, class Outputs>
class Operator final : public Meta {
 public:
  template <class... Given>
  explicit Operator(const Given&... given) : outputs_(given...) {}

  void set_output_strided(
      int64_t index,
      at::IntArrayRef sizes,
      at::IntArrayRef strides,
      at::TensorOptions options) override {
    set(index, sizes, strides, options);
  }
  void set_output_raw_strided(
      int64_t index,
      at::IntArrayRef sizes,
      at::IntArrayRef strides,
      at::TensorOptions options) override {
    set(index, sizes, strides, options);
  }
  const at::Tensor& maybe_get_output(int64_t index) override {
    return outputs_[index];
  }
  const at::Tensor& operator[](int64_t index) const {
    return outputs_[index];
  }
  auto take() {
    return outputs_.take();
  }

 private:
  void set(
      int64_t index,
      at::IntArrayRef sizes,
      at::IntArrayRef strides,
      const at::TensorOptions& options) {
    outputs_.set(index, sizes, strides, options);
    if constexpr (std::is_base_of_v<at::TensorIteratorBase, Meta>) {
      Meta::set_output_raw_strided(index, sizes, strides, options);
    }
  }

  Outputs outputs_;
};

} // namespace detail

template <class Meta, size_t N = 1>
using Functional = detail::Operator<Meta, detail::Created<N>>;
template <class Meta>
using Inplace = detail::Operator<Meta, detail::Updated>;
template <class Meta, size_t N = 1>
using Out = detail::Operator<Meta, detail::Given<N>>;

// Throws in torch's words unless all tensors (optional ones and lists, too) are on one device.
// Called with the name of each argument and the argument.
inline void check_common_device(const char*, std::optional<c10::Device>) {}
template <class Tensors, class... Rest>
void check_common_device(
    const char* op,
    std::optional<c10::Device> device,
    const char* name,
    const Tensors& tensors,
    const Rest&... rest) {
  c10::impl::check_and_update_common_device(device, tensors, op, name);
  check_common_device(op, device, rest...);
}

// ---- Pointwise operators on operands that are alike, whose result is one more like them: no need
// to ask the meta function, which costs the host more than the launch (codegen/generate.py,
// POINTWISE).

namespace detail {
inline bool plain(const at::Tensor& tensor, c10::ScalarType dtype) {
  const auto* const impl = tensor.unsafeGetTensorImpl();
  return tensor.scalar_type() == dtype && impl->device_type() == kDeviceType &&
      impl->is_contiguous();
}
} // namespace detail

// Contiguous, of one shape, device and floating dtype. Not 0-dim: those take part in promotion.
template <class... Tensors>
bool alike(const at::Tensor& first, const Tensors&... rest) {
  const auto dtype = first.scalar_type();
  const bool floating =
      dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16 || dtype == at::kHalf;
  return floating && first.dim() > 0 && detail::plain(first, dtype) &&
      ((detail::plain(rest, dtype) && rest.device() == first.device() &&
        rest.sizes() == first.sizes()) &&
       ...);
}
// Neither is a part of the other's memory.
inline bool apart(const at::Tensor& a, const at::Tensor& b) {
  return a.is_same(b) || a.storage().unsafeGetStorageImpl() != b.storage().unsafeGetStorageImpl();
}
// A factor that every floating dtype takes.
inline bool real(const at::Scalar& scalar) {
  return scalar.isFloatingPoint() || scalar.isIntegral(/*includeBool=*/false);
}
// A tensor like that.
at::Tensor make_alike(const at::Tensor& tensor);

// Queues the kernel of an operator; its first operand is an output. `scalars` are all that the
// kernel converts to elements. Unless `fits` (of all packed
// arguments), waits for it.
template <class Kernel>
void launch_operator(
    const char* name,
    c10::ArrayRef<Operand> operands,
    const Kernel& kernel,
    std::initializer_list<std::optional<at::Scalar>> scalars = {},
    bool fits = true) {
  static_assert(std::is_trivially_copyable_v<Kernel> && std::is_trivially_destructible_v<Kernel>);
  detail::launch_operator(
      name,
      operands,
      [](const void* k, at::TensorList aliases) { (*static_cast<const Kernel*>(k))(aliases); },
      &kernel,
      sizeof(Kernel),
      Scalars(scalars.begin(), scalars.size()),
      fits);
}

// `first` and a read of each element of a list.
std::vector<Operand> with_list(c10::ArrayRef<Operand> first, const at::ITensorListRef& list);

// An optional tensor argument: as an operand, as meta functions take it, and as kernels do.
inline const at::Tensor& or_undefined(const std::optional<at::Tensor>& tensor) {
  static const at::Tensor undefined;
  return tensor ? *tensor : undefined;
}
inline at::OptionalTensorRef reference(const std::optional<at::Tensor>& tensor) {
  return tensor && tensor->defined() ? at::OptionalTensorRef(*tensor) : at::OptionalTensorRef();
}
inline std::optional<at::Tensor> or_none(const at::Tensor& alias) {
  return alias.defined() ? std::optional<at::Tensor>(alias) : std::nullopt;
}

// Kernels take their outputs as at::Tensor&, although they only write to what they refer to.
inline at::Tensor& written(at::TensorList aliases, size_t index) {
  return const_cast<at::Tensor&>(aliases[index]);
}

} // namespace accel
