// Shapes of what the CPU computes by a TensorIterator: the same iterator, built on the host.
#pragma once

#include <initializer_list>
#include <optional>

#include "../shapes.h"

namespace accel {

// One output over the broadcast inputs, in the memory order that a TensorIterator gives it. Its
// dtype is `dtype`, or that of the promoted inputs. Raises torch's error where they do not
// broadcast.
Outputs elementwise(
    std::initializer_list<at::Tensor> inputs,
    std::optional<at::ScalarType> dtype = std::nullopt);

// Nothing new: the inputs, of which self is the first, are computed into self. Raises torch's error
// where they do not broadcast to its sizes, or their common dtype cannot be cast to its.
Outputs elementwise_inplace(std::initializer_list<at::Tensor> inputs);

} // namespace accel
