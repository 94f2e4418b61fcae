#include "structured.h"

#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>

#include "../runtime/allocator.h"
#include "../runtime/stream.h"

namespace accel {

namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

// Makes a device current while alive; costs nothing where it is.
class OnDevice {
 public:
  explicit OnDevice(c10::DeviceIndex index) : index_(index), previous_(current_device()) {
    if (C10_UNLIKELY(index_ != previous_)) {
      set_device(index_);
    }
  }
  ~OnDevice() {
    if (C10_UNLIKELY(index_ != previous_)) {
      unchecked_exchange_device(previous_);
    }
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  const c10::DeviceIndex index_;
  const c10::DeviceIndex previous_;
};

} // namespace

at::Tensor make_alike(const at::Tensor& tensor) {
  const OnDevice on_device(tensor.device().index());
  return at::detail::empty_generic(
      tensor.sizes(), device_allocator(), kKeys, tensor.scalar_type(), std::nullopt);
}

namespace detail {

at::Tensor
create_output(at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options) {
  const OnDevice on_device(options.device().index());
  const auto dtype = c10::typeMetaToScalarType(options.dtype());
  if (strides.empty()) {
    return at::detail::empty_generic(
        sizes, device_allocator(), kKeys, dtype, options.memory_format_opt());
  }
  return at::detail::empty_strided_generic(sizes, strides, device_allocator(), kKeys, dtype);
}

void check_inplace(
    const at::Tensor& self,
    at::IntArrayRef sizes,
    const at::TensorOptions& options) {
  TORCH_CHECK(
      options.dtype() == self.dtype(),
      "Bad in-place call: input tensor dtype ",
      self.dtype(),
      " and output tensor dtype ",
      options.dtype(),
      " should match");
  TORCH_CHECK(
      options.device() == self.device(),
      "Bad in-place call: input tensor device ",
      self.device(),
      " and output tensor device ",
      options.device(),
      " should match");
  TORCH_CHECK(
      sizes == self.sizes(),
      "Bad in-place call: input tensor size ",
      self.sizes(),
      " and output tensor size ",
      sizes,
      " should match");
}

void resize_out(
    const at::Tensor& out,
    at::IntArrayRef sizes,
    at::IntArrayRef strides,
    const at::TensorOptions& options) {
  TORCH_CHECK(
      options.dtype() == out.dtype(),
      "Expected out tensor to have dtype ",
      options.dtype(),
      ", but got ",
      out.dtype(),
      " instead");
  TORCH_CHECK(
      options.device() == out.device(),
      "Expected out tensor to have device ",
      options.device(),
      ", but got ",
      out.device(),
      " instead");
  // The strides that the meta function asks for are a hint: they count only if it is resized.
  if (at::native::resize_output(out, sizes)) {
    if (!strides.empty()) {
      out.as_strided_(sizes, strides);
    } else if (options.memory_format_opt().has_value()) {
      out.unsafeGetTensorImpl()->empty_tensor_restride(*options.memory_format_opt());
    }
  }
}

namespace {

c10::Stream stream_of(c10::ArrayRef<Operand> operands) {
  for (const auto& operand : operands) {
    if (operand.tensor.defined() && operand.tensor.device().type() == kDeviceType) {
      return current_stream(operand.tensor.device().index());
    }
  }
  TORCH_INTERNAL_ASSERT(false, "accel: an operator without a tensor on accel");
}

} // namespace

void launch_operator(
    const char* name,
    c10::ArrayRef<Operand> operands,
    Run run,
    const void* kernel,
    size_t kernel_bytes,
    Scalars scalars,
    bool fits) {
  check_dtypes(operands, scalars, std::hash<Run>()(run), [&](at::TensorList t) { run(kernel, t); });
  const auto stream = stream_of(operands);
  if (C10_LIKELY(fits)) {
    launch(name, stream, operands, run, kernel, kernel_bytes, {}, accelEngineCompute);
  } else {
    launch_and_wait(
        name, stream, operands, [&](at::TensorList t) { run(kernel, t); }, "long_argument");
  }
}

} // namespace detail

std::vector<Operand> with_list(c10::ArrayRef<Operand> first, const at::ITensorListRef& list) {
  std::vector<Operand> operands(first.begin(), first.end());
  for (const at::Tensor& tensor : list) {
    operands.push_back(reads(tensor));
  }
  return operands;
}

} // namespace accel
