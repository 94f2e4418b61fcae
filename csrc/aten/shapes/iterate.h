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

} // namespace accel
