// copy_ in all directions, with CUDA's meaning of non_blocking, and what reads or writes single
// values.
//
// device -> device: queued; between devices both streams are ordered.
//
// host -> device: a pinned source is read in place, and the host waits unless non_blocking. A
// pageable one is captured at the call when small or non_blocking, else the host waits.
//
// device -> host: queued if pinned and non_blocking, else the host waits.
#include "copy.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <torch/library.h>

#include "../runtime/host_allocator.h"
#include "../runtime/stream.h"
#include "launch.h"

namespace accel {

namespace {

// Up to here a pageable source is captured in the record; above it, waiting costs less than a
// second copy. CUDA's driver stages the same 64 KiB.
constexpr size_t kCaptureBytes = 64 * 1024;

constexpr Cost kCopyCost{.flops = 0};

struct CopyKernel {
  void operator()(at::TensorList tensors) const {
    tensors[0].copy_(tensors[1]);
  }
};

bool is_accel(const at::Tensor& tensor) {
  return tensor.device().type() == kDeviceType;
}

bool is_pinned(const at::Tensor& tensor) {
  return is_pinned_ptr(tensor.storage().data());
}

// With the errors that the CPU's copy_ raises.
at::Tensor broadcast_to(const at::Tensor& src, at::IntArrayRef sizes) {
  if (src.sizes() == sizes) {
    return src;
  }
  const auto shape = at::infer_size(sizes, src.sizes());
  TORCH_CHECK(
      shape == sizes,
      "output with shape ",
      sizes,
      " doesn't match the broadcast shape ",
      c10::IntArrayRef(shape));
  return src.expand(sizes);
}

void copy_between_devices(const at::Tensor& self, const at::Tensor& src) {
  // As torch.cuda: the copy runs on the source's stream once the destination's stream has come
  // here, and the destination's stream goes on after it.
  const auto src_stream = current_stream(src.device().index());
  const auto dst_stream = current_stream(self.device().index());
  c10::Event dst_ready(kDeviceType);
  dst_ready.record(dst_stream);
  dst_ready.block(src_stream);
  launch("copy_", src_stream, {writes(self), reads(src)}, CopyKernel{}, kCopyCost, accelEngineCopy);
  c10::Event copied(kDeviceType);
  copied.record(src_stream);
  copied.block(dst_stream);
}

// A graph would copy at each replay what the tensor held at the capture, or wait.
void check_pageable(c10::Stream stream) {
  TORCH_CHECK(
      capture_id(stream) == 0,
      "Cannot copy between CPU and accel tensors during accel graph capture unless the CPU tensor "
      "is "
      "pinned. Please use tensor.pin_memory() or allocate the tensor with pin_memory=True.");
}

void copy_from_host(const at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  const auto stream = current_stream(self.device().index());
  if (is_pinned(src)) {
    if (!non_blocking) {
      forbid_in_capture(stream, "copy_");
    }
    launch("copy_", stream, {writes(self), reads(src)}, CopyKernel{}, kCopyCost, accelEngineCopy);
    if (!non_blocking) {
      synchronize_stream(stream, "copy_");
    }
    return;
  }
  check_pageable(stream);
  const size_t bytes = src.numel() * src.element_size();
  if (bytes <= kCaptureBytes) {
    launch("copy_", stream, {writes(self), reads(src)}, CopyKernel{}, kCopyCost, accelEngineCopy);
  } else if (non_blocking) {
    const auto staged = at::empty(src.sizes(), src.options().pinned_memory(true));
    staged.copy_(src);
    launch(
        "copy_", stream, {writes(self), reads(staged)}, CopyKernel{}, kCopyCost, accelEngineCopy);
  } else {
    launch_and_wait(
        "copy_",
        stream,
        {writes(self)},
        [&](at::TensorList tensors) { tensors[0].copy_(src); },
        "copy_",
        accelEngineCopy);
  }
}

void copy_to_host(const at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  const auto stream = current_stream(src.device().index());
  if (non_blocking && is_pinned(self)) {
    launch("copy_", stream, {writes(self), reads(src)}, CopyKernel{}, kCopyCost, accelEngineCopy);
  } else {
    if (!is_pinned(self)) {
      check_pageable(stream);
    }
    const at::Tensor none;
    launch_and_wait(
        "copy_",
        stream,
        {reads(src), writes(is_pinned(self) ? self : none)}, // pageable memory is the host's alone
        [&](at::TensorList tensors) { self.copy_(tensors[0]); },
        "copy_",
        accelEngineCopy);
  }
}

at::Tensor copy_from(const at::Tensor& src, const at::Tensor& dst, bool non_blocking) {
  auto self = dst;
  return copy_(self, src, non_blocking);
}

at::Tensor copy_from_and_resize(const at::Tensor& src, const at::Tensor& dst) {
  auto self = dst;
  self.resize_(src.sizes());
  return copy_(self, src, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  at::Scalar value;
  launch_and_wait(
      "_local_scalar_dense",
      current_stream(self.device().index()),
      {reads(self)},
      [&](at::TensorList tensors) { value = tensors[0].item(); },
      "item",
      accelEngineCopy);
  return value;
}

} // namespace

at::Tensor& copy_(at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  TORCH_CHECK(self.defined(), "self is undefined");
  TORCH_CHECK(src.defined(), "src is undefined");
  TORCH_CHECK(
      !self._is_zerotensor(),
      "ZeroTensors are immutable. Please materialize the tensor using `.clone()`, if you want a "
      "mutable zero tensor.");
  if (src._is_zerotensor()) {
    return self.zero_();
  }
  if (self.is_same(src)) {
    return self;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      self.layout() == c10::kStrided && src.layout() == c10::kStrided,
      "accel: copies between layouts ",
      src.layout(),
      " and ",
      self.layout(),
      " are not supported yet; call .to_dense() first");
  const auto source = broadcast_to(src, self.sizes());
  if (self.numel() == 0) {
    return self;
  }
  at::assert_no_internal_overlap(self);
  if (is_accel(self) && is_accel(src)) {
    if (self.device() == src.device()) {
      at::assert_no_partial_overlap(self, source);
      launch(
          "copy_",
          current_stream(self.device().index()),
          {writes(self), reads(source)},
          CopyKernel{},
          kCopyCost,
          accelEngineCopy);
    } else {
      copy_between_devices(self, source);
    }
  } else if (src.device().is_cpu()) {
    copy_from_host(self, source, non_blocking);
  } else if (self.device().is_cpu()) {
    copy_to_host(self, source, non_blocking);
  } else {
    // Neither end is the host: by way of it, as torch does between backends.
    self.copy_(source.to(c10::Device(c10::DeviceType::CPU)), non_blocking);
  }
  return self;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("copy_", TORCH_FN(copy_));
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
}

// The kernels read the math bits themselves. Without these, a copy would resolve the bit by a copy,
// for ever.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

} // namespace accel
