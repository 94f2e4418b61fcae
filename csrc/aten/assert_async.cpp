// Assertions on the device: queued, so that a false one rises at the next synchronisation, as
// torch.cuda's device-side assertions do.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <memory>
#include <string>
#include <string_view>

#include "../runtime/stream.h"
#include "launch.h"

namespace accel {

namespace {

struct Assertion {
  std::string message;

  void operator()(at::TensorList tensors) const {
    TORCH_CHECK(tensors[0].is_nonzero(), message);
  }
};

void assert_async_msg(const at::Tensor& self, std::string_view message) {
  const auto count = self.numel();
  TORCH_CHECK(count != 0, "Boolean value of Tensor with no values is ambiguous");
  TORCH_CHECK(count < 2, "Boolean value of Tensor with more than one value is ambiguous");
  launch(
      "_assert_async",
      current_stream(self.device().index()),
      {reads(self)},
      std::make_unique<const Assertion>(Assertion{std::string(message)}));
}

void assert_async(const at::Tensor& self) {
  assert_async_msg(self, "Expected Tensor with single nonzero value, but got zero");
}

at::Tensor functional_assert_async_msg(
    const at::Tensor& self,
    std::string_view message,
    const at::Tensor& token) {
  assert_async_msg(self, message);
  return token.clone();
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_assert_async", &assert_async);
  m.impl("_assert_async.msg", &assert_async_msg);
  m.impl("_functional_assert_async.msg", &functional_assert_async_msg);
}

} // namespace

} // namespace accel
