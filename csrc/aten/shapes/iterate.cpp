#include "iterate.h"

#include <ATen/TensorIterator.h>

#include <algorithm>

namespace accel {

Outputs elementwise(std::initializer_list<at::Tensor> inputs, std::optional<at::ScalarType> dtype) {
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).allow_cpu_scalars(true).add_owned_output(at::Tensor());
  const bool on_device = std::any_of(
      inputs.begin(), inputs.end(), [](const at::Tensor& input) { return !input.is_cpu(); });
  for (const auto& input : inputs) {
    // A number of the CPU's changes no shape, and the iterator takes only one of them.
    if (!(dtype && on_device && input.is_cpu() && input.dim() == 0)) {
      config.add_owned_const_input(input);
    }
  }
  if (dtype) {
    config.check_all_same_dtype(false).declare_static_dtype(*dtype);
  } else {
    config.promote_inputs_to_common_dtype(true);
  }
  auto iterator = config.build();
  return outputs(at::Tensor(iterator.output()));
}

Outputs elementwise_inplace(std::initializer_list<at::Tensor> inputs) {
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false)
      .allow_cpu_scalars(true)
      .promote_inputs_to_common_dtype(true)
      .cast_common_dtype_to_outputs(true)
      .enforce_safe_casting_to_output(true)
      .add_owned_output(*inputs.begin());
  for (const auto& input : inputs) {
    config.add_owned_const_input(input);
  }
  config.build();
  return outputs();
}

} // namespace accel
