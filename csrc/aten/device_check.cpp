#include "device_check.h"

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/op_registration/adaption.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "../runtime/generator.h"

namespace accel {

namespace {

// (operator, argument) pairs that may be on the CPU beside device tensors, as on CUDA; an empty
// operator stands for every one.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kHostArguments{{
    {"aten::index", "indices"},
    {"aten::_unsafe_index", "indices"},
    {"aten::index_put", "indices"},
    {"aten::index_put_", "indices"},
    {"aten::_index_put_impl_", "indices"},
    {"aten::_pack_padded_sequence", "lengths"},
    {"aten::_pad_packed_sequence", "batch_sizes"},
    {"aten::_nested_from_padded", "cpu_nested_shape_example"},
    {"", "scalars"}, // _foreach_addcmul.Tensor and its kin read them on the host
}};

bool may_be_on_host(const std::string& op, const std::string& argument) {
  for (const auto& [name, exempt] : kHostArguments) {
    if (argument == exempt && (name.empty() || op == name)) {
      return true;
    }
  }
  return false;
}

// A generator of the device brings calls here whose tensors are all on the CPU: then it is the one
// that is in the wrong place.
void check_generator(c10::ArrayRef<c10::IValue> arguments) {
  const auto generator = std::find_if(arguments.begin(), arguments.end(), [](const auto& value) {
    return value.isGenerator() && value.toGenerator().defined();
  });
  if (generator == arguments.end()) {
    return;
  }
  const auto type = generator->toGenerator().device().type();
  std::optional<c10::DeviceType> other;
  for (const c10::IValue& value : arguments) {
    if (value.isTensor() && value.toTensor().defined()) {
      if (value.toTensor().device().type() == type) {
        return;
      }
      other = other.value_or(value.toTensor().device().type());
    }
  }
  if (other.has_value()) {
    check_generator_type(generator->toGenerator(), *other);
  }
}

} // namespace

void check_same_device(
    const c10::FunctionSchema& schema,
    c10::ArrayRef<c10::IValue> arguments,
    c10::Device device) {
  check_generator(arguments);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& argument = schema.arguments()[i];
    const auto check = [&](const at::Tensor& tensor) {
      if (!tensor.defined() || tensor.device() == device) {
        return;
      }
      const bool host_scalar = tensor.device().is_cpu() && tensor.dim() == 0 && !argument.is_out();
      if (!host_scalar &&
          !(tensor.device().is_cpu() && may_be_on_host(schema.name(), argument.name()))) {
        c10::impl::common_device_check_failure(
            device, tensor, schema.name().c_str(), argument.name().c_str());
      }
    };
    const auto& value = arguments[i];
    if (value.isTensor()) {
      check(value.toTensor());
    } else if (value.isList()) {
      for (const c10::IValue& element : value.toListRef()) {
        if (element.isTensor()) {
          check(element.toTensor());
        }
      }
    }
  }
}

} // namespace accel
