// x[indices] and x[indices] = values. Masks become positions first where their number decides,
// which waits for it; the rest is queued.
#include <ATen/ExpandUtils.h>
#include <ATen/core/IListRef.h>
#include <ATen/native/IndexingUtils.h>
#include <ATen/ops/index_cpu_dispatch.h>
#include <ATen/ops/index_meta.h>
#include <torch/library.h>

#include <algorithm>

#include "queued_operator.h"
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

// ---- x[indices] = values

at::Tensor at_or_none(const Indices& indices, size_t i) {
  return i < indices.size() ? indices.get(i).value_or(at::Tensor()) : at::Tensor();
}

bool is_mask(const at::Tensor& index) {
  return index.defined() && (index.scalar_type() == at::kBool || index.scalar_type() == at::kByte);
}

// Whether the only index is a mask, and values suit what it chooses, however many elements.
bool suits_mask(
    const at::Tensor& self,
    const Indices& indices,
    const at::Tensor& values,
    bool accumulate) {
  size_t before = 0;
  while (before < indices.size() && !at_or_none(indices, before).defined()) {
    ++before;
  }
  for (size_t i = before + 1; i < indices.size(); ++i) {
    if (at_or_none(indices, i).defined()) {
      return false;
    }
  }
  const auto mask = at_or_none(indices, before);
  const auto sizes = self.sizes();
  if (!is_mask(mask) || before + mask.dim() > sizes.size() ||
      mask.sizes() != sizes.slice(before, mask.dim())) {
    return false;
  }
  if (values.numel() == 1 && !accumulate) { // the kernel fills, and casts
    return at::canCast(values.scalar_type(), self.scalar_type());
  }
  at::DimVector chosen(sizes.slice(0, before));
  chosen.push_back(1);
  const auto after = sizes.slice(before + mask.dim());
  chosen.append(after.begin(), after.end());
  return mask.dim() > 0 && values.scalar_type() == self.scalar_type() &&
      at::is_expandable_to(values.sizes(), chosen);
}

// Whether values suit the elements at positions.
bool suits_positions(const at::Tensor& self, const Indices& indices, const at::Tensor& values) {
  at::DimVector chosen; // of the dimensions without an index; the others' shape goes to `where`
  at::DimVector shape;
  size_t where = 0;
  int64_t last = -1;
  bool apart = false;
  bool nothing = false; // to point at
  for (int64_t dim = 0; dim < self.dim(); ++dim) {
    const auto index = at_or_none(indices, dim);
    if (!index.defined()) {
      chosen.push_back(self.size(dim));
      continue;
    }
    if ((index.scalar_type() != at::kLong && index.scalar_type() != at::kInt) ||
        !at::are_expandable(shape, index.sizes())) {
      return false;
    }
    shape = at::infer_size_dimvector(shape, index.sizes());
    nothing = nothing || self.size(dim) == 0;
    where = last < 0 ? chosen.size() : where;
    apart = apart || (last >= 0 && last + 1 != dim);
    last = dim;
  }
  chosen.insert(chosen.begin() + (apart ? 0 : where), shape.begin(), shape.end());
  const bool some = std::find(shape.begin(), shape.end(), 0) == shape.end();
  return last >= 0 && !(nothing && some) && values.scalar_type() == self.scalar_type() &&
      at::is_expandable_to(values.sizes(), chosen);
}

Outputs
put_shape(const at::Tensor& self, Indices indices, const at::Tensor& values, bool accumulate) {
  if (static_cast<int64_t>(indices.size()) > self.dim()) {
    return decline();
  }
  for (const std::optional<at::Tensor>& index : indices) {
    if (index && index->defined() && overlap(self, *index)) {
      return decline();
    }
  }
  return suits_mask(self, indices, values, accumulate) || suits_positions(self, indices, values)
      ? outputs()
      : decline();
}

at::Tensor& index_put(
    at::Tensor& self,
    const Indices& indices,
    const at::Tensor& values,
    bool accumulate,
    bool unsafe) {
  static const auto* const put = new QueuedOperator( // leaked: records refer to it
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::_index_put_impl_", ""),
      {"_index_put_impl_", shape<put_shape>, no_flops});
  const bool count = !suits_mask(self, indices, values, accumulate) &&
      std::any_of(indices.begin(), indices.end(), [](const std::optional<at::Tensor>& index) {
        return index && is_mask(*index);
      });
  torch::jit::Stack stack{
      self, count ? positions(self, indices) : indices, values, accumulate, unsafe};
  put->call(&stack);
  return self;
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("index.Tensor", TORCH_FN(index));
  m.impl("index.Tensor_out", TORCH_FN(index_out));
  m.impl("_index_put_impl_", TORCH_FN(index_put));
}

} // namespace accel
