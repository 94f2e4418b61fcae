// COO tensors with spare room.
//
// How many distinct indices a sum of uncoalesced tensors has depends on values, so the host cannot
// know it without waiting. Such a sum therefore gets room for all of them, as on CUDA; what is left
// free repeats the last index with the value -0.0, which changes no sum. CPU kernels that are
// waited for never see it: on the worker it is cut off first.
#pragma once

#include <ATen/core/Tensor.h>

namespace accel {

// Writes the members of `sum`, an uncoalesced CPU tensor, into roomier ones and fills what is left.
void copy_with_padding(const at::Tensor& sum, const at::Tensor& indices, const at::Tensor& values);

// Cuts the padding off a CPU tensor. True if there was any.
bool cut_padding(const at::Tensor& tensor);

} // namespace accel
