#include "queued_operator.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/hash.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "../runtime/plant.h"
#include "../runtime/stream.h"
#include "arguments.h"
#include "cpu_allocator.h"
#include "device_check.h"
#include "dry_run.h"
#include "fallback.h"

namespace accel {

namespace {

std::atomic<int64_t> g_misplaced{0};

using Ordinals = c10::SmallVector<int32_t, 4>;

} // namespace

// Which allocation of its size each result of an operator was, for operands of a geometry where it
// was not the first: what was copied once is made in place from then on.
class PlacementLessons {
 public:
  Ordinals recall(at::TensorList operands) {
    if (C10_LIKELY(!any_.load(std::memory_order_acquire))) {
      return {};
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = ordinals_.find(key(operands));
    return found == ordinals_.end() ? Ordinals() : found->second;
  }

  void learn(at::TensorList operands, Ordinals ordinals) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ordinals_.size() < kMost) {
      ordinals_[key(operands)] = std::move(ordinals);
      any_.store(true, std::memory_order_release);
    }
  }

 private:
  static constexpr size_t kMost = 4096; // programs with ever new shapes

  static size_t key(at::TensorList operands) {
    size_t result = 0;
    for (const auto& tensor : operands) {
      if (tensor.defined()) {
        result = c10::hash_combine(result, static_cast<size_t>(tensor.scalar_type()));
        result = c10::hash_combine(result, c10::hash<at::IntArrayRef>()(tensor.sizes()));
        result = c10::hash_combine(result, c10::hash<at::IntArrayRef>()(tensor.strides()));
      } else {
        result = c10::hash_combine(result, 1);
      }
    }
    return result;
  }

  std::atomic<bool> any_{false};
  std::mutex mutex_;
  std::unordered_map<size_t, Ordinals> ordinals_;
};

namespace {

// Where an operand goes: argument `argument`, and which element of it if that is a list.
struct Slot {
  uint32_t argument;
  int32_t element; // -1: the argument itself
};

// What a record holds of the call: its arguments but for the tensors, which are operands.
class BoxedCall {
 public:
  BoxedCall(const c10::OperatorHandle& op, size_t num_fresh, PlacementLessons& lessons)
      : op_(op), num_fresh_(num_fresh), lessons_(lessons) {}

  c10::SmallVector<c10::IValue, 8> arguments;
  c10::SmallVector<Slot, 8> slots; // of the operands after the fresh outputs

  void operator()(at::TensorList operands) const {
    const auto fresh = operands.slice(0, num_fresh_);
    const PlaceAllocations place(fresh, lessons_.recall(operands)); // outlives the results
    auto stack = boxed(operands.slice(num_fresh_));
    op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
    settle(operands, stack, place);
  }

 private:
  torch::jit::Stack boxed(at::TensorList operands) const {
    torch::jit::Stack stack(arguments.begin(), arguments.end());
    for (auto& value : stack) {
      if (value.isTensorList()) {
        value = c10::List<at::Tensor>();
      } else if (value.isOptionalTensorList()) {
        c10::List<std::optional<at::Tensor>> list;
        list.resize(value.toListRef().size());
        value = std::move(list);
      }
    }
    for (size_t i = 0; i < slots.size(); ++i) {
      const auto [argument, element] = slots[i];
      if (element < 0) {
        stack[argument] = operands[i];
      } else if (stack[argument].isTensorList()) {
        stack[argument].toTensorList().push_back(operands[i]);
      } else {
        stack[argument].toOptionalTensorList().set(element, operands[i]);
      }
    }
    return stack;
  }

  // Sees that each result is in its output's memory.
  void settle(at::TensorList operands, torch::jit::Stack& returned, const PlaceAllocations& place)
      const {
    const auto fresh = operands.slice(0, num_fresh_);
    if (fresh.empty()) {
      return;
    }
    c10::SmallVector<at::Tensor, 4> results;
    for (const auto& value : returned) {
      for_each_tensor(value, [&](const at::Tensor& tensor) { results.push_back(tensor); });
    }
    returned.clear();
    TORCH_INTERNAL_ASSERT(results.size() >= fresh.size(), "accel: ", op_.operator_name());
    Ordinals ordinals(fresh.size(), -1);
    bool learned = false;
    // A result in the memory of an earlier output must leave before that one is written.
    for (size_t i = 0; i < fresh.size(); ++i) {
      check(fresh[i], results[i], i);
      if (!results[i].defined()) {
        continue;
      }
      const void* const memory = results[i].storage().data();
      ordinals[i] = place.ordinal_of(i, memory);
      const int index = place.index_of(memory);
      learned = learned || (ordinals[i] >= 0 && index != static_cast<int>(i));
      if (index >= 0 && index < static_cast<int>(i)) {
        results[i] = results[i].clone();
      }
    }
    for (size_t i = 0; i < fresh.size(); ++i) {
      const auto& result = results[i];
      if (!fresh[i].defined() || fresh[i].numel() == 0) {
        continue;
      }
      if (result.const_data_ptr() != fresh[i].const_data_ptr() || !same_layout(result, fresh[i])) {
        g_misplaced.fetch_add(1, std::memory_order_relaxed);
        const bool within = result.storage().data() == fresh[i].storage().data();
        fresh[i].copy_(within ? result.clone() : result);
      }
    }
    if (C10_UNLIKELY(learned)) {
      lessons_.learn(operands, std::move(ordinals));
    }
  }

  static bool same_layout(const at::Tensor& a, const at::Tensor& b) {
    return a.strides() == b.strides() && a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
  }

  void check(const at::Tensor& foreseen, const at::Tensor& result, size_t index) const {
    TORCH_CHECK(
        foreseen.defined() == result.defined() &&
            (!result.defined() ||
             (result.sizes() == foreseen.sizes() &&
              result.scalar_type() == foreseen.scalar_type())),
        "accel: the CPU's kernel of ",
        op_.operator_name(),
        " gave output ",
        index,
        " as ",
        result.toString(),
        result.defined() ? result.sizes() : at::IntArrayRef(),
        " where its shape function foresaw ",
        foreseen.toString(),
        foreseen.defined() ? foreseen.sizes() : at::IntArrayRef(),
        "; correct its row in csrc/aten/shapes");
  }

  c10::OperatorHandle op_;
  size_t num_fresh_;
  PlacementLessons& lessons_;
};

// The operands of one argument, appended.
void append(
    const c10::IValue& value,
    uint32_t argument,
    uint32_t access,
    std::vector<Operand>& operands,
    BoxedCall& call) {
  if (value.isTensor()) {
    operands.push_back({value.toTensor(), access});
    call.slots.push_back({argument, -1});
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    int32_t element = 0;
    for (const c10::IValue& item : value.toListRef()) {
      if (item.isTensor()) {
        operands.push_back({item.toTensor(), access});
        call.slots.push_back({argument, element});
      }
      ++element;
    }
  }
}

// Scalar or Scalar?
bool is_scalar(const c10::Type& type) {
  const auto* const optional = type.castRaw<c10::OptionalType>();
  const auto kind = optional != nullptr ? optional->getElementType()->kind() : type.kind();
  return kind == c10::TypeKind::NumberType;
}

// An operator over lists that the CPU computes by other operators, element by element.
bool is_composite(const c10::OperatorHandle& op) {
  const auto& arguments = op.schema().arguments();
  const bool has_list = std::any_of(arguments.begin(), arguments.end(), [](const auto& argument) {
    return argument.type()->isSubtypeOf(*c10::ListType::ofTensors());
  });
  return has_list && !op.hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
      op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
}

bool same_dtypes(at::TensorList a, at::TensorList b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(), [](const at::Tensor& x, const at::Tensor& y) {
        return x.scalar_type() == y.scalar_type();
      });
}

bool is_operand(const at::Tensor& out, Arguments arguments) {
  return std::count_if(arguments.begin(), arguments.end(), [&](const c10::IValue& value) {
           return value.isTensor() && value.toTensor().is_same(out);
         }) > 1; // itself
}

// Whether an out= argument has another shape than it should, and either holds something (how it is
// resized, and with which warning, differs from kernel to kernel) or is an input (it may not be).
bool resizes(at::TensorList outs, at::TensorList made, Arguments arguments) {
  for (size_t i = 0; i < outs.size(); ++i) {
    if (outs[i].sizes() != made[i].sizes() &&
        (outs[i].numel() > 0 || is_operand(outs[i], arguments))) {
      return true;
    }
  }
  return false;
}

// A list with tensors of several devices: no launch sees them all.
bool scattered(Arguments arguments, c10::Device device) {
  for (const auto& value : arguments) {
    if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) {
        if (tensor.defined() && tensor.device() != device) {
          return true;
        }
      }
    }
  }
  return false;
}

c10::OperatorHandle find_operator(const std::string& name) {
  const auto dot = name.find('.');
  return c10::Dispatcher::singleton().findSchemaOrThrow(
      ("aten::" + name.substr(0, dot)).c_str(),
      dot == std::string::npos ? "" : name.substr(dot + 1).c_str());
}

} // namespace

int64_t misplaced_results() {
  return g_misplaced.load();
}

QueuedOperator::QueuedOperator(const c10::OperatorHandle& op, const ShapeRow& row, bool decomposes)
    : op_(op),
      row_(row),
      composite_(decomposes && is_composite(op)),
      lessons_(new PlacementLessons()) {
  const auto& schema = op.schema();
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto& argument = schema.arguments()[i];
    const auto* alias = argument.alias_info();
    marked_.push_back(alias != nullptr && alias->isWrite());
    if (argument.is_out()) {
      out_arguments_.push_back(i);
    }
    if (is_scalar(*argument.real_type())) {
      scalar_arguments_.push_back(i);
    }
  }
  for (const auto& result : schema.returns()) {
    int source = -1;
    for (size_t i = 0; result.alias_info() != nullptr && i < schema.arguments().size(); ++i) {
      const auto* alias = schema.arguments()[i].alias_info();
      if (alias != nullptr && alias->beforeSets() == result.alias_info()->beforeSets()) {
        source = static_cast<int>(i);
      }
    }
    returns_.push_back(source);
    returns_list_ = returns_list_ || result.type()->kind() == c10::TypeKind::ListType;
  }
  TORCH_INTERNAL_ASSERT(!returns_list_ || returns_.size() == 1, "accel: ", op.operator_name());
}

bool QueuedOperator::written(size_t argument, Arguments arguments) const {
  return marked_[argument] ||
      (((row_.writes >> argument) & 1) != 0 &&
       (row_.writes_if < 0 || arguments[row_.writes_if].toBool()));
}

void QueuedOperator::queue(c10::Device device, Arguments arguments, at::TensorList fresh) const {
  auto call = std::make_unique<BoxedCall>(op_, fresh.size(), *lessons_);
  std::vector<Operand> operands;
  for (const auto& tensor : fresh) {
    operands.push_back(accel::writes(tensor));
  }
  // What is written comes first: launch() makes an operand that is an output the same tensor.
  for (const bool write : {true, false}) {
    for (uint32_t i = 0; i < arguments.size(); ++i) {
      if (written(i, arguments) == write) {
        const bool out = op_.schema().arguments()[i].is_out();
        const uint32_t access = !write ? accelAccessRead
            : out                      ? accelAccessWrite
                                       : accelAccessRead | accelAccessWrite;
        append(arguments[i], i, access, operands, *call);
      }
    }
  }
  for (const auto& value : arguments) {
    if (value.isTensor()) {
      call->arguments.emplace_back();
    } else if (value.isTensorList()) {
      call->arguments.emplace_back(c10::List<at::Tensor>());
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      list.resize(value.toListRef().size());
      call->arguments.emplace_back(std::move(list));
    } else if (value.isDevice()) {
      call->arguments.emplace_back(c10::Device(c10::DeviceType::CPU));
    } else {
      call->arguments.push_back(value);
    }
  }
  c10::SmallVector<std::optional<at::Scalar>, 4> scalars;
  for (const auto i : scalar_arguments_) {
    if (arguments[i].isScalar()) {
      scalars.emplace_back(arguments[i].toScalar());
    }
  }
  check_dtypes(
      operands,
      scalars,
      std::hash<std::string_view>()(row_.op),
      [&](at::TensorList dummies) { (*call)(dummies); },
      composite_ ? DryRunSizes::kOne : DryRunSizes::kReal); // composites are lists of small calls
  std::vector<at::Tensor> written;
  for (const auto& [tensor, access] : operands) {
    if ((access & accelAccessWrite) != 0 && tensor.defined()) {
      written.push_back(tensor);
    }
  }
  const Cost cost{
      row_.flops(arguments, written), written.empty() ? at::kFloat : written[0].scalar_type()};
  launch(
      op_.schema().name().c_str(),
      current_stream(device.index()),
      operands,
      std::unique_ptr<const BoxedCall>(std::move(call)),
      cost);
}

// Some kernels refuse overlapping arguments, some compute: theirs to say, in their words. What a
// record holds of a host tensor is a copy, which nobody would see written. No memory stands behind
// a zero tensor.
bool QueuedOperator::unusual(Arguments arguments) const {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].isTensor() && arguments[i].toTensor()._is_zerotensor()) {
      return true;
    }
    if (!written(i, arguments)) {
      continue;
    }
    bool found = false;
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      found = found ||
          (tensor.defined() &&
           (!on_accel(tensor) || has_internal_overlap(tensor) == at::MemOverlap::Yes));
    });
    for (size_t j = 0; arguments[i].isTensor() && j < arguments.size(); ++j) {
      if (i != j && arguments[j].isTensor()) {
        const auto& a = arguments[i].toTensor();
        const auto& b = arguments[j].toTensor();
        found = found || (overlap(a, b) && !(row_.over_input && a.is_same(b)));
      }
    }
    if (found) {
      return true;
    }
  }
  return false;
}

// torch counts what is written to the arguments that are returned; to elements of lists the
// operators within a composite would.
void QueuedOperator::count_versions(Arguments arguments) const {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (marked_[i] && arguments[i].isTensorList()) {
      for_each_tensor(arguments[i], [](const at::Tensor& tensor) {
        if (tensor.defined() && !tensor.is_inference()) {
          tensor.unsafeGetTensorImpl()->bump_version();
        }
      });
    }
  }
}

// Runs the composite kernel on the host: it calls operators that are queued, or that say what is
// wrong.
void QueuedOperator::decompose(torch::jit::Stack* stack) const {
  op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

void QueuedOperator::operator()(
    const c10::OperatorHandle& op,
    c10::DispatchKeySet,
    torch::jit::Stack* stack) {
  call(stack);
}

void QueuedOperator::call(torch::jit::Stack* stack) const {
  lazy_init(); // raises in a forked child
  const auto& schema = op_.schema();
  const size_t num_arguments = schema.arguments().size();
  const Arguments arguments = torch::jit::last(*stack, num_arguments);
  const auto device = device_of_call(arguments);
  const c10::DeviceGuard guard(device);
  if (composite_ && scattered(arguments, device)) {
    decompose(stack);
    return;
  }
  check_same_device(schema, arguments, device);
  auto made = unusual(arguments) ? decline() : row_.shape(arguments);
  c10::SmallVector<at::Tensor, 2> outs;
  for (const size_t i : out_arguments_) {
    for_each_tensor(arguments[i], [&](const at::Tensor& out) { outs.push_back(out); });
  }
  if (made && !out_arguments_.empty() &&
      (!same_dtypes(outs, *made) || // some kernels cast, some refuse
       resizes(outs, *made, arguments))) {
    made = decline();
  }
  if (made && C10_UNLIKELY(planted(Plant::kForesight))) {
    for (auto& tensor : *made) {
      tensor = tensor.defined() ? tensor.unsqueeze(0) : tensor;
    }
  }
  if (!made) {
    if (composite_) {
      decompose(stack);
    } else {
      fallback_declined(op_, stack);
    }
    return;
  }
  for (size_t i = 0; i < outs.size(); ++i) {
    // A composite's out= form copies what its functional form makes.
    if (at::native::resize_output(outs[i], (*made)[i].sizes()) && !composite_) {
      outs[i].as_strided_((*made)[i].sizes(), (*made)[i].strides());
    }
  }
  if (!out_arguments_.empty()) {
    made->clear();
  }
  queue(device, arguments, *made);

  if (composite_) {
    count_versions(arguments);
  }

  torch::jit::Stack results;
  size_t next_fresh = 0;
  for (const int source : returns_) {
    if (source >= 0) {
      results.push_back(arguments[source]);
    } else if (returns_list_) {
      results.emplace_back(std::vector<at::Tensor>(made->begin(), made->end()));
    } else {
      results.emplace_back(std::move((*made)[next_fresh++]));
    }
  }
  torch::jit::drop(*stack, num_arguments);
  std::move(results.begin(), results.end(), std::back_inserter(*stack));
}

void register_queued_operators() {
  static torch::Library aten(
      torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  for (const auto& row : shape_rows()) {
    const auto op = find_operator(row.op);
    TORCH_INTERNAL_ASSERT(
        !op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1),
        "accel: aten::",
        row.op,
        " is registered twice");
    aten.impl(
        row.op,
        torch::CppFunction::makeFromBoxedFunctor(std::make_unique<QueuedOperator>(op, row)));
  }
}

} // namespace accel
