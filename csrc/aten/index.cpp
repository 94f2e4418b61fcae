// x[indices]. Masks become positions first, which waits for their number; the rest is queued as the
// generated operators are.
#include <ATen/core/IListRef.h>
#include <ATen/native/IndexingUtils.h>
#include <ATen/ops/index_cpu_dispatch.h>
#include <ATen/ops/index_meta.h>
#include <torch/library.h>

#include "structured.h"

namespace accel {

namespace {

using Indices = c10::List<std::optional<at::Tensor>>;

// The indices as positions on self's device; bad ones are left to the meta function's errors.
Indices positions(const at::Tensor& self, const Indices& indices) {
  at::native::checkIndexTensorTypes(indices, /*allow_int=*/true);
  if (static_cast<int64_t>(indices.size()) > self.dim()) {
    return indices;
  }
  Indices result;
  for (auto& index : at::native::expandTensors(self, indices)) {
    if (!index.defined()) {
      result.push_back(std::nullopt);
    } else {
      result.push_back(index.is_cpu() ? index.to(self.device()) : std::move(index));
    }
  }
  return result;
}

void launch_index(const at::Tensor& out, const at::Tensor& self, const Indices& indices) {
  std::vector<at::Tensor> tensors;
  for (const std::optional<at::Tensor>& index : indices) {
    tensors.push_back(index.value_or(at::Tensor()));
  }
  launch_operator("index", with_list({writes(out), reads(self)}, tensors), [](at::TensorList t) {
    Indices aliases;
    for (const auto& index : t.slice(2)) {
      aliases.push_back(or_none(index));
    }
    at::cpu::index_outf(t[1], aliases, written(t, 0));
  });
}

at::Tensor index(const at::Tensor& self, const Indices& indices) {
  const auto where = positions(self, indices);
  Functional<at::meta::structured_index_Tensor> op;
  op.meta(self, where);
  launch_index(op[0], self, where);
  return op.take();
}

at::Tensor& index_out(const at::Tensor& self, const Indices& indices, at::Tensor& out) {
  const auto where = positions(self, indices);
  Out<at::meta::structured_index_Tensor> op(out);
  op.meta(self, where);
  launch_index(op[0], self, where);
  return out;
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("index.Tensor", TORCH_FN(index));
  m.impl("index.Tensor_out", TORCH_FN(index_out));
}

} // namespace accel
