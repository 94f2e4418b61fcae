#include "run_on_cpu.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../runtime/allocator.h"
#include "../runtime/generator.h"
#include "../runtime/plant.h"
#include "../runtime/stream.h"
#include "adopt.h"
#include "alias.h"
#include "arguments.h"
#include "compose.h"
#include "cpu_allocator.h"
#include "device_check.h"
#include "launch.h"

namespace accel {

namespace {

// True if a failed attempt may have changed an input, so that it cannot be repeated. out= arguments
// are only ever overwritten.
bool writes_inputs(const c10::FunctionSchema& schema) {
  for (const auto& argument : schema.arguments()) {
    if (argument.alias_info() && argument.alias_info()->isWrite() && !argument.is_out()) {
      return true;
    }
  }
  return false;
}

at::Tensor to_alias(const at::Tensor& tensor, Aliases& aliases) {
  return on_accel(tensor) ? aliases.alias(tensor) : tensor;
}

c10::IValue to_cpu_argument(const c10::IValue& value, Aliases& aliases) {
  if (value.isTensor()) {
    return to_alias(value.toTensor(), aliases);
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      list.push_back(to_alias(tensor, aliases));
    }
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
      list.push_back(tensor ? std::optional<at::Tensor>(to_alias(*tensor, aliases)) : tensor);
    }
    return list;
  }
  if (value.isDevice() && value.toDevice().type() == kDeviceType) {
    return c10::Device(c10::DeviceType::CPU);
  }
  return value;
}

// The generator argument of the schema, if any: CPU kernels draw from a CPU generator that the
// device's generator seeds.
struct GeneratorArgument {
  size_t index;
  at::Generator cpu;
};

std::optional<GeneratorArgument> generator_argument(
    const c10::FunctionSchema& schema,
    c10::ArrayRef<c10::IValue> arguments,
    c10::Device device) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& type = *schema.arguments()[i].real_type();
    const bool is_generator = type.kind() == c10::TypeKind::GeneratorType ||
        (type.kind() == c10::TypeKind::OptionalType &&
         type.castRaw<c10::OptionalType>()->getElementType()->kind() ==
             c10::TypeKind::GeneratorType);
    if (is_generator) {
      auto* const generator =
          generator_or_default(arguments[i].toOptional<at::Generator>(), device);
      return GeneratorArgument{i, cpu_generator_for_call(generator)};
    }
  }
  return std::nullopt;
}

// A kernel written in Python needs the GIL and may look at its thread: it runs on the caller's.
// Told by where the kernel was registered, once per operator and key: each such question costs
// torch memory.
bool has_python_kernel(const c10::OperatorHandle& op, c10::DispatchKey key) {
  using Known = std::unordered_map<c10::OperatorName, bool>;
  static std::mutex mutex;
  static auto* const by_key = new std::unordered_map<c10::DispatchKey, Known>(); // leaked: see exit
  std::lock_guard<std::mutex> lock(mutex);
  const auto [entry, inserted] = (*by_key)[key].try_emplace(op.operator_name(), false);
  if (inserted) {
    const auto kernel = op.getComputedKernelForDispatchKey(key);
    const std::string_view debug = kernel.debug(); // registered at FILE:LINE
    const auto file = debug.substr(0, debug.rfind(':'));
    entry->second = file.ends_with(".py") || file.ends_with('>'); // <stdin>, <string>
  }
  return entry->second;
}

// Some kernels make what a backward needs only if an argument requires a gradient
// (_sparse_mm_reduce_impl). Not for kernels in Python, where .numpy() would refuse such a tensor.
void mark_gradients(const Aliases& aliases) {
  for (const auto& entry : aliases.entries()) {
    if (entry.original.requires_grad()) {
      entry.alias.unsafeGetTensorImpl()->set_requires_grad(true);
    }
  }
}

// What the call reads and writes, as operands that the kernel does not look at: a launch tells it
// to those who watch. Out= arguments are written, other marked ones updated.
class Touched {
 public:
  Touched(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      const auto& argument = schema.arguments()[i];
      const bool written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
      const uint32_t access = !written ? uint32_t{accelAccessRead}
          : argument.is_out()          ? uint32_t{accelAccessWrite}
                                       : accelAccessRead | accelAccessWrite;
      for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
        if (on_accel(tensor) && !tensor._is_zerotensor()) {
          for (auto& member : members_of(tensor)) {
            tensors_.emplace_back(std::move(member), access);
          }
        }
      });
    }
    for (const auto& [tensor, access] : tensors_) {
      operands_.push_back({tensor, access});
    }
  }
  c10::ArrayRef<Operand> operands() const {
    return operands_;
  }

 private:
  std::vector<std::pair<at::Tensor, uint32_t>> tensors_;
  std::vector<Operand> operands_;
};

void attempt(
    const c10::OperatorHandle& op,
    c10::DispatchKeySet keys,
    c10::Stream stream,
    c10::ArrayRef<c10::IValue> arguments,
    Adoption& adoption,
    torch::jit::Stack& results) {
  const bool python = has_python_kernel(op, keys.highestPriorityTypeId());
  const auto kernel = [&, caller = Requester::of_this_thread()](at::TensorList) {
    const ActingFor acting(caller); // memory for the results comes from the pool the caller uses
    const RedirectAllocations redirect(stream);
    for (const auto& argument : arguments) {
      results.push_back(to_cpu_argument(argument, adoption.aliases));
    }
    if (!python) {
      mark_gradients(adoption.aliases);
    }
    try {
      op.redispatchBoxed(keys, &results);
    } catch (...) {
      results.clear();
      throw;
    }
    adoption.workspace = redirect.outstanding();
  };
  if (has_python_kernel(op, keys.highestPriorityTypeId())) {
    const ExecuteNow now;
    synchronize_stream(stream, "fallback");
    kernel({});
  } else {
    const Touched touched(op.schema(), arguments);
    launch_and_wait(op.schema().name().c_str(), stream, touched.operands(), kernel, "fallback");
  }
}

} // namespace

c10::DispatchKeySet cpu_keys(c10::DispatchKeySet keys) {
  constexpr c10::DispatchKeySet kFunctionalities(
      {c10::DispatchKey::Dense,
       c10::DispatchKey::Sparse,
       c10::DispatchKey::SparseCsr,
       c10::DispatchKey::NestedTensor});
  return (keys & kFunctionalities) | c10::DispatchKeySet(c10::BackendComponent::CPUBit);
}

void run_on_cpu(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const size_t num_arguments = schema.arguments().size();
  std::vector<c10::IValue> arguments(
      std::make_move_iterator(stack->end() - static_cast<ptrdiff_t>(num_arguments)),
      std::make_move_iterator(stack->end()));
  stack->resize(stack->size() - num_arguments);

  const auto device = device_of_call(arguments);
  if (C10_UNLIKELY(g_captures.load(std::memory_order_relaxed) != 0)) {
    forbid_in_capture(current_stream(device.index()), (schema.name() + " (fallback)").c_str());
  }
  check_same_device(schema, arguments, device);
  auto generator = generator_argument(schema, arguments, device);
  if (generator) {
    arguments[generator->index] = generator->cpu;
  }
  const auto stream = current_stream(device.index());

  const auto saved =
      generator ? std::optional<at::Generator>(generator->cpu.clone()) : std::nullopt;
  Adoption adoption(device);
  torch::jit::Stack results;
  try {
    attempt(op, cpu_keys(keys), stream, arguments, adoption, results);
  } catch (const c10::OutOfMemoryError&) {
    // The worker may not wait for memory that other streams hold; this thread may.
    if (planted(Plant::kReclaim) || writes_inputs(schema) ||
        !reclaim(device.index(), "fallback.reclaim")) {
      throw;
    }
    adoption = Adoption(device);
    if (generator) {
      generator->cpu.set_state(saved->get_state());
    }
    attempt(op, cpu_keys(keys), stream, arguments, adoption, results);
  }
  adoption.sync_inputs();
  for (auto& result : results) {
    stack->push_back(adoption.adopt(std::move(result)));
  }
  results.clear();
  adoption.finish();
}

} // namespace accel
