// Sparse and nested tensors: shells of metadata around dense members, which are moved between the
// device and its CPU aliases member by member.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/util/FunctionRef.h>

#include <vector>

namespace accel {

// Sparse COO, the four compressed layouts, and nested tensors of strided layout.
bool is_composed(const at::Tensor& tensor);

// The dense members of a composed tensor; a dense tensor itself.
std::vector<at::Tensor> members_of(const at::Tensor& tensor);

// The member of the new tensor for a member of the old one: indices, values, a nested tensor's
// buffer.
using MapMember = c10::function_ref<at::Tensor(const at::Tensor&)>;

// A tensor of `backend` that is what `like` is, over its mapped members.
at::Tensor compose(const at::Tensor& like, c10::BackendComponent backend, MapMember map);

// Makes `tensor` what `like` has become: sizes, indices, values, coalesced. Touches only what
// differs.
void recompose(const at::Tensor& tensor, const at::Tensor& like, MapMember map);

} // namespace accel
