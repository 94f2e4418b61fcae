#include "queued_operator.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <memory>

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

// Where an operand goes: argument `argument`, and which element of it if that is a list.
struct Slot {
  uint32_t argument;
  int32_t element; // -1: the argument itself
};

// What a record holds of the call: its arguments but for the tensors, which are operands.
class BoxedCall {
 public:
  // `into`: the fresh outputs are the operator's out= arguments.
  BoxedCall(const c10::OperatorHandle& op, size_t num_fresh, bool into)
      : op_(op), num_fresh_(num_fresh), into_(into) {}

  c10::SmallVector<c10::IValue, 8> arguments;
  c10::SmallVector<Slot, 8> slots; // of the operands after the fresh outputs

  void operator()(at::TensorList operands) const {
    const auto fresh = operands.slice(0, num_fresh_);
    // Outlives the results, which give its memory back.
    const PlaceAllocations place(into_ ? at::TensorList() : fresh);
    auto stack = boxed(operands.slice(num_fresh_));
    if (into_) {
      stack.insert(stack.end(), fresh.begin(), fresh.end());
    }
    op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
    settle(fresh, stack, place);
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
  void settle(at::TensorList fresh, torch::jit::Stack& results, const PlaceAllocations& place)
      const {
    // A result in the memory of another output must leave before that one is written.
    for (size_t i = 0; i < fresh.size(); ++i) {
      check(fresh[i], results[i].toTensor(), i);
      const auto& result = results[i].toTensor();
      const int index = result.defined() ? place.index_of(result.storage().data()) : -1;
      if (index >= 0 && static_cast<size_t>(index) != i) {
        results[i] = result.clone();
      }
    }
    for (size_t i = 0; i < fresh.size(); ++i) {
      const auto& result = results[i].toTensor();
      if (!fresh[i].defined() || fresh[i].numel() == 0) {
        continue;
      }
      if (result.const_data_ptr() != fresh[i].const_data_ptr() || !same_layout(result, fresh[i])) {
        g_misplaced.fetch_add(1, std::memory_order_relaxed);
        const bool within = place.index_of(result.storage().data()) >= 0;
        fresh[i].copy_(within ? result.clone() : result);
      }
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
  bool into_;
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

QueuedOperator::QueuedOperator(const c10::OperatorHandle& op, const ShapeRow& row)
    : op_(op), row_(row), runs_(row.through == nullptr ? op : find_operator(row.through)) {
  const auto& schema = op.schema();
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto& argument = schema.arguments()[i];
    const auto* alias = argument.alias_info();
    written_.push_back((alias != nullptr && alias->isWrite()) || ((row.writes >> i) & 1) != 0);
    if (argument.is_out()) {
      out_arguments_.push_back(i);
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
  }
}

void QueuedOperator::queue(c10::Device device, Arguments arguments, at::TensorList fresh) const {
  auto call = std::make_unique<BoxedCall>(runs_, fresh.size(), row_.through != nullptr);
  std::vector<Operand> operands;
  for (const auto& tensor : fresh) {
    operands.push_back(accel::writes(tensor));
  }
  // What is written comes first: launch() makes an operand that is an output the same tensor.
  for (const bool write : {true, false}) {
    for (uint32_t i = 0; i < arguments.size(); ++i) {
      if (written_[i] == write) {
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
  check_dtypes(operands, std::hash<std::string>()(row_.op), [&](at::TensorList dummies) {
    (*call)(dummies);
  });
  std::vector<at::Tensor> written;
  for (const auto& [tensor, access] : operands) {
    if ((access & accelAccessWrite) != 0) {
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

// Some kernels refuse overlapping arguments, some compute: theirs to say, in their words.
bool QueuedOperator::overlapping(Arguments arguments) const {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!written_[i]) {
      continue;
    }
    bool found = false;
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      found = found || (tensor.defined() && has_internal_overlap(tensor) == at::MemOverlap::Yes);
    });
    for (size_t j = 0; arguments[i].isTensor() && j < arguments.size(); ++j) {
      if (i != j && arguments[j].isTensor()) {
        const auto& a = arguments[i].toTensor();
        const auto& b = arguments[j].toTensor();
        // The status of operands that are not dense is "too hard" even in two storages.
        found = found ||
            (a.defined() && b.defined() && a.is_alias_of(b) &&
             at::get_overlap_status(a, b) != at::MemOverlapStatus::No &&
             !(row_.over_input && a.is_same(b)));
      }
    }
    if (found) {
      return true;
    }
  }
  return false;
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
  check_same_device(schema, arguments, device);
  auto made = overlapping(arguments) ? decline() : row_.shape(arguments);
  for (size_t i = 0; made && i < out_arguments_.size(); ++i) {
    const auto& out = arguments[out_arguments_[i]].toTensor();
    const bool is_input = std::any_of(arguments.begin(), arguments.end(), [&](const auto& value) {
      return &value != &arguments[out_arguments_[i]] && value.isTensor() &&
          value.toTensor().is_same(out);
    });
    if (out.scalar_type() != (*made)[i].scalar_type() || // some kernels cast, some refuse
        (is_input && out.sizes() != (*made)[i].sizes())) { // it may not be resized
      made = decline();
    }
  }
  if (made && C10_UNLIKELY(planted(Plant::kForesight))) {
    for (auto& tensor : *made) {
      tensor = tensor.defined() ? tensor.unsqueeze(0) : tensor;
    }
  }
  if (!made) {
    fallback_declined(op_, stack);
    return;
  }
  for (size_t i = 0; i < out_arguments_.size(); ++i) {
    const auto& out = arguments[out_arguments_[i]].toTensor();
    if (at::native::resize_output(out, (*made)[i].sizes())) {
      out.as_strided_((*made)[i].sizes(), (*made)[i].strides());
    }
  }
  if (!out_arguments_.empty()) {
    made->clear();
  }
  queue(device, arguments, *made);

  torch::jit::Stack results;
  size_t next_fresh = 0;
  for (const int source : returns_) {
    if (source >= 0) {
      results.push_back(arguments[source]);
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
