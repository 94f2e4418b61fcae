#ifndef NDEBUG
#define NDEBUG // as torch's libraries: without it RecordFunction has a member more than theirs
#endif

#include "host_access.h"

#include <ATen/TensorUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include <mutex>
#include <set>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "../driver/accel.h"
#include "../runtime/device.h"
#include "../runtime/host_allocator.h"
#include "sanitizer.h"

namespace accel::sanitizer {

namespace {

// They touch what a tensor is, not its bytes.
bool only_metadata(std::string_view name) {
  static const std::set<std::string_view> names = {
      "aten::resize_",
      "aten::resize_as_",
      "aten::set_",
      "aten::_resize_output_",
      "aten::is_set_to",
      "aten::record_stream",
      "aten::is_pinned",
      "aten::empty_like",
      "aten::new_empty_strided",
  };
  return names.count(name) != 0;
}

// How an operator treats each argument: 0 not at all, or accelAccess* bits.
using Treatment = std::vector<uint8_t>;

Treatment treatment_of(const c10::OperatorName& name) {
  const auto op = c10::Dispatcher::singleton().findOp(name);
  if (!op || !op->hasSchema() || only_metadata(name.name)) {
    return {};
  }
  // copy_ and stack have one kernel for all devices that touches the bytes itself.
  const bool computes = op->hasKernelForDispatchKey(c10::DispatchKey::CPU) ||
      name.name == "aten::copy_" || name.name == "aten::stack";
  Treatment treatment;
  for (const auto& argument : op->schema().arguments()) {
    const auto* const alias = argument.alias_info();
    const uint8_t access = alias == nullptr ? accelAccessRead
        : alias->isWrite()                  ? accelAccessWrite
                                            : 0; // a view
    treatment.push_back(computes ? access : 0);
  }
  return treatment;
}

// Once per operator: a schema is asked for at every call.
const Treatment& known_treatment(const c10::OperatorName& name) {
  static std::mutex mutex;
  static auto* const known = new std::unordered_map<c10::OperatorName, Treatment>(); // leaked
  std::lock_guard<std::mutex> lock(mutex);
  const auto found = known->find(name);
  return found != known->end() ? found->second
                               : known->emplace(name, treatment_of(name)).first->second;
}

template <class Visit>
void for_each_tensor(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      visit(tensor);
    }
  }
}

// Where a CPU tensor's storage begins in pinned memory, or null. Asks no tensor without memory for
// it: a fake one would raise.
const char* pinned_base(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.device().is_cpu() || !tensor.has_storage()) {
    return nullptr;
  }
  auto* const storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  const auto* const data = storage->_mutable_data_ptr_no_checks().get();
  return is_pinned_ptr(data) ? static_cast<const char*>(data) : nullptr;
}

// Storages whose next use by the operator raises the report. A start callback cannot throw; torch's
// own guard against the use of a storage's memory can.
struct Guarded final : at::ObserverContext {
  std::vector<c10::Storage> storages;
};

bool touches_device(const at::RecordFunction& function) {
  bool found = false;
  for (const auto& value : function.inputs()) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      found |= tensor.defined() && tensor.device().type() == kDeviceType;
    });
  }
  return found;
}

std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& function) {
  const auto name = function.operator_name();
  if (!name || accelStreamOfThisThread(nullptr) != nullptr || in_bad_fork()) {
    return nullptr; // a kernel on a worker: its launch was looked at
  }
  const auto& treatment = known_treatment(*name);
  const auto inputs = function.inputs();
  std::unique_ptr<Guarded> guarded;
  std::optional<bool> launched; // then the launch was looked at
  for (size_t i = 0; i < inputs.size() && i < treatment.size(); ++i) {
    if (treatment[i] == 0) {
      continue;
    }
    for_each_tensor(inputs[i], [&](const at::Tensor& tensor) {
      if (pinned_base(tensor) == nullptr) {
        return;
      }
      launched = launched.value_or(touches_device(function));
      if (*launched) {
        return;
      }
      const bool write = treatment[i] == accelAccessWrite;
      if (const auto text = check_host_access(tensor, name->name.c_str(), write)) {
        if (mode() == Mode::kWarn) {
          warn(*text);
          return;
        }
        guarded = guarded != nullptr ? std::move(guarded) : std::make_unique<Guarded>();
        guarded->storages.push_back(tensor.storage());
        tensor.storage()
            .unsafeGetStorageImpl()
            ->release_data_and_set_meta_custom_data_ptr_error_msg_(*text);
      }
    });
  }
  return guarded;
}

void after_operator(const at::RecordFunction&, at::ObserverContext* context) {
  if (context != nullptr) {
    for (const auto& storage : static_cast<Guarded*>(context)->storages) {
      storage.unsafeGetStorageImpl()->clear_data_ptr_access_error_msg_();
    }
  }
}

std::mutex g_mutex;
std::atomic<at::CallbackHandle> g_handle{at::INVALID_CALLBACK_HANDLE};

} // namespace

void watch_operators() {
  if (g_handle.load(std::memory_order_relaxed) != at::INVALID_CALLBACK_HANDLE) {
    return;
  }
  std::lock_guard<std::mutex> lock(g_mutex);
  if (g_handle.load() == at::INVALID_CALLBACK_HANDLE) {
    g_handle.store(
        at::addGlobalCallback(
            at::RecordFunctionCallback(&on_operator, &after_operator)
                .needsInputs(true)
                .scopes({at::RecordScope::FUNCTION})));
  }
}

void unwatch_operators() {
  std::lock_guard<std::mutex> lock(g_mutex);
  const auto handle = g_handle.exchange(at::INVALID_CALLBACK_HANDLE);
  if (handle != at::INVALID_CALLBACK_HANDLE) {
    at::removeCallback(handle);
  }
}

std::optional<Access> pinned_access(const at::Tensor& tensor, const char* name, bool write) {
  const auto* const base = pinned_base(tensor);
  if (base == nullptr || tensor.layout() != c10::kStrided || tensor.numel() == 0) {
    return std::nullopt;
  }
  const auto first =
      reinterpret_cast<uintptr_t>(base) + tensor.storage_offset() * tensor.element_size();
  Access access;
  access.bytes.first = first;
  access.bytes.last = first +
      at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.element_size());
  access.write = write;
  access.name = name;
  access.storage = reinterpret_cast<uint64_t>(tensor.storage().unsafeGetStorageImpl());
  return access;
}

} // namespace accel::sanitizer
