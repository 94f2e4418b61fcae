#include "launch.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>
#include <unordered_map>
#include <vector>

#include "../runtime/error.h"
#include "../runtime/host_allocator.h"
#include "../runtime/plant.h"
#include "../runtime/stream.h"
#include "../runtime/sync_debug.h"
#include "../runtime/warning.h"
#include "access.h"
#include "alias.h"
#include "host_state.h"
#include "replay.h"

namespace accel {

namespace {

constexpr size_t kAlign = 16;

constexpr size_t aligned(size_t bytes) {
  return (bytes + kAlign - 1) & ~(kAlign - 1);
}

// ---- The record's payload: Header, kernel, then a Descriptor per operand, each with its sizes,
// strides and captured bytes.

struct alignas(kAlign) Header {
  detail::Run run;
  HostState host;
  uint32_t num_operands;
  uint32_t kernel_bytes;
  bool twice; // see replay.h
};

enum class Place : uint8_t { kUndefined, kDevice, kPinned, kCaptured, kSame };

struct alignas(kAlign) Descriptor {
  uint64_t storage_id; // equal for operands of one storage; kSame: index of the operand it repeats
  void* storage_data; // device or pinned address; null when captured
  uint64_t storage_bytes;
  int64_t offset;
  uint32_t total_bytes; // of this descriptor with what follows it
  uint16_t rank;
  Place place;
  c10::ScalarType dtype;
  bool conj;
  bool neg;
  bool wrapped_number;
  bool written;

  int64_t* sizes() {
    return reinterpret_cast<int64_t*>(this + 1);
  }
  const int64_t* sizes() const {
    return reinterpret_cast<const int64_t*>(this + 1);
  }
  int64_t* strides() {
    return sizes() + rank;
  }
  const int64_t* strides() const {
    return sizes() + rank;
  }
  static size_t head_bytes(size_t rank) {
    return aligned(sizeof(Descriptor) + 2 * rank * sizeof(int64_t));
  }
  const void* captured() const {
    return reinterpret_cast<const char*>(this) + head_bytes(rank);
  }
  void* captured() {
    return reinterpret_cast<char*>(this) + head_bytes(rank);
  }
};

// Refers to the caller's tensor: the copy of one that Python holds takes the GIL, twice.
struct Prepared {
  const at::Tensor* tensor; // of a captured one the copy: contiguous and without math bits
  size_t bytes; // of its descriptor
  Place place;
  bool written;
  uint16_t same; // kSame: the operand that it repeats
};
using PreparedList = c10::SmallVector<Prepared, 8>;
// The copies stand still: `Prepared` points at them.
using Captured = std::deque<at::Tensor>;

Prepared prepare(const Operand& operand, std::optional<Captured>& copies) {
  const auto& tensor = operand.tensor;
  Prepared result{
      &tensor,
      Descriptor::head_bytes(0),
      Place::kUndefined,
      (operand.access & accelAccessWrite) != 0,
      0};
  if (!tensor.defined()) {
    return result;
  }
  const auto* const impl = tensor.unsafeGetTensorImpl();
  result.bytes = Descriptor::head_bytes(impl->dim());
  if (C10_LIKELY(impl->device_type() == kDeviceType)) {
    result.place = Place::kDevice;
    return result;
  }
  TORCH_INTERNAL_ASSERT(tensor.device().is_cpu(), "accel: an operand on ", tensor.device());
  if (tensor.numel() > 0 && is_pinned_ptr(tensor.storage().data())) {
    result.place = Place::kPinned;
    return result;
  }
  if (C10_UNLIKELY(planted(Plant::kCapture))) {
    result.place = Place::kPinned;
    return result;
  }
  if (!copies) {
    copies.emplace();
  }
  result.tensor = &copies->emplace_back(tensor.resolve_conj().resolve_neg().contiguous());
  result.place = Place::kCaptured;
  result.bytes += aligned(result.tensor->nbytes());
  return result;
}

// The written operand among the first that is this very tensor: kernels ask whether an output *is*
// an input (is_same), so both must be one alias. Outputs come first; a list after them is not
// searched. -1: none.
int same_as(const at::Tensor& tensor, const PreparedList& before) {
  constexpr size_t kSearched = 4;
  const auto searched = std::min(before.size(), kSearched);
  for (size_t i = 0; i < searched; ++i) {
    if (before[i].written && before[i].tensor->is_same(tensor) && tensor.defined()) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

// All but what follows a captured operand's head, and kSame's index.
void describe(const Prepared& operand, Descriptor* out) {
  out->total_bytes = static_cast<uint32_t>(operand.bytes);
  out->place = operand.place;
  out->written = operand.written;
  out->rank = 0;
  if (operand.place == Place::kSame) {
    out->storage_id = operand.same;
    return;
  }
  if (operand.place == Place::kUndefined) {
    return;
  }
  const auto& tensor = *operand.tensor;
  auto* const impl = tensor.unsafeGetTensorImpl();
  auto* const storage = impl->unsafe_storage().unsafeGetStorageImpl();
  const auto sizes = impl->sizes();
  const auto strides = impl->strides();
  out->rank = static_cast<uint16_t>(sizes.size());
  out->dtype = c10::typeMetaToScalarType(impl->dtype());
  out->wrapped_number = impl->is_wrapped_number();
  auto* const to = out->sizes();
  for (size_t d = 0; d < sizes.size(); ++d) {
    to[d] = sizes[d];
    to[sizes.size() + d] = strides[d];
  }
  if (operand.place == Place::kCaptured) {
    out->storage_id = reinterpret_cast<uint64_t>(out); // views of one storage are copies apart
    out->storage_data = nullptr;
    out->storage_bytes = tensor.nbytes();
    out->offset = 0;
    out->conj = out->neg = false;
    if (out->storage_bytes > 0) {
      std::memcpy(out->captured(), tensor.const_data_ptr(), out->storage_bytes);
    }
    return;
  }
  out->storage_id = reinterpret_cast<uint64_t>(storage);
  out->storage_data = storage->mutable_data();
  out->storage_bytes = storage->nbytes();
  out->offset = impl->storage_offset();
  out->conj = tensor.is_conj();
  out->neg = tensor.is_neg();
}

// ---- The worker's side

using Tensors = c10::SmallVector<at::Tensor, 4>;

// One alias storage per storage. Few are searched one by one, the thousands of a list by hash.
class AliasStorages {
 public:
  template <class Make>
  const c10::Storage& get(uint64_t id, Make&& make) {
    for (const auto& [known, storage] : few_) {
      if (known == id) {
        return storage;
      }
    }
    if (few_.size() < kFew) {
      return few_.emplace_back(id, make()).second;
    }
    const auto [entry, inserted] = many_.try_emplace(id);
    if (inserted) {
      entry->second = make();
    }
    return entry->second;
  }

 private:
  static constexpr size_t kFew = 8;
  c10::SmallVector<std::pair<uint64_t, c10::Storage>, kFew> few_;
  std::unordered_map<uint64_t, c10::Storage> many_;
};

Tensors build_aliases(const Header& header, const char* at) {
  Tensors tensors;
  tensors.reserve(header.num_operands);
  AliasStorages storages;
  for (uint32_t i = 0; i < header.num_operands; ++i) {
    const auto* const d = reinterpret_cast<const Descriptor*>(at);
    at += d->total_bytes;
    if (d->place == Place::kUndefined) {
      tensors.emplace_back();
      continue;
    }
    if (d->place == Place::kSame) {
      tensors.push_back(at::Tensor(tensors[d->storage_id]));
      continue;
    }
    const auto& storage = storages.get(d->storage_id, [d] {
      void* const host = d->place == Place::kCaptured ? const_cast<void*>(d->captured())
          : d->place == Place::kPinned                ? d->storage_data
                                                      : host_address(d->storage_data);
      return alias_storage(host, d->storage_bytes, /*resizable=*/false);
    });
    const Geometry geometry{
        {d->sizes(), d->rank}, {d->strides(), d->rank}, d->offset, d->dtype, d->conj, d->neg};
    tensors.push_back(tensor_on(storage, c10::DispatchKey::CPU, geometry));
    if (d->wrapped_number) {
      tensors.back().unsafeGetTensorImpl()->set_wrapped_number(true);
    }
  }
  return tensors;
}

// A kernel may set the conjugate or negative bit of an output instead of computing it
// (linalg_lu_solve does): the tensor on the device has no such bit.
void resolve_math_bits(const Descriptor& d, const at::Tensor& alias) {
  auto* const impl = alias.unsafeGetTensorImpl();
  if (C10_UNLIKELY(alias.is_conj() != d.conj)) {
    impl->_set_conj(d.conj);
    alias.conj_physical_();
  }
  if (C10_UNLIKELY(alias.is_neg() != d.neg)) {
    impl->_set_neg(d.neg);
    alias.neg_();
  }
}

// A kernel that gives an output other sizes, strides or memory has not written the device's tensor.
void check_outputs(const Header& header, const char* at, const Tensors& aliases) {
  for (uint32_t i = 0; i < header.num_operands; ++i) {
    const auto* const d = reinterpret_cast<const Descriptor*>(at);
    at += d->total_bytes;
    if (!d->written || (d->place != Place::kDevice && d->place != Place::kPinned)) {
      continue;
    }
    const auto& alias = aliases[i];
    if (C10_UNLIKELY(planted(Plant::kRestride))) {
      const std::vector<int64_t> turned(alias.strides().rbegin(), alias.strides().rend());
      alias.unsafeGetTensorImpl()->set_sizes_and_strides(alias.sizes(), turned);
    }
    const void* const memory =
        d->place == Place::kPinned ? d->storage_data : host_address(d->storage_data);
    TORCH_CHECK(
        alias.sizes() == at::IntArrayRef(d->sizes(), d->rank) &&
            alias.strides() == at::IntArrayRef(d->strides(), d->rank) &&
            alias.storage_offset() == d->offset && alias.storage().data() == memory,
        "accel: the CPU's kernel gave output ",
        i,
        " of shape ",
        at::IntArrayRef(d->sizes(), d->rank),
        " other sizes, strides or memory; pass an output of the right shape, or none");
    resolve_math_bits(*d, alias);
  }
}

std::string describe_operands(at::TensorList tensors) {
  std::ostringstream text;
  for (const auto& tensor : tensors) {
    if (tensor.defined()) {
      text << (text.tellp() > 0 ? ", " : "") << tensor.scalar_type() << tensor.sizes();
    }
  }
  return text.str();
}

// Zeroes what the record captured, as a kernel would that computes in its operands.
void spend(const Header& header, const char* at) {
  for (uint32_t i = 0; i < header.num_operands; ++i) {
    auto* const d = const_cast<Descriptor*>(reinterpret_cast<const Descriptor*>(at));
    at += d->total_bytes;
    if (d->place == Place::kCaptured) {
      std::memset(d->captured(), 0, d->storage_bytes);
    }
  }
}

void run_again(const Header& header, const char* kernel, Tensors& aliases) {
  const auto* const operands = kernel + aligned(header.kernel_bytes);
  std::vector<FirstResult> results;
  const auto* at = operands;
  for (uint32_t i = 0; i < header.num_operands; ++i) {
    const auto* const d = reinterpret_cast<const Descriptor*>(at);
    at += d->total_bytes;
    if (d->written && (d->place == Place::kDevice || d->place == Place::kPinned)) {
      results.emplace_back(i, aliases[i]);
    }
  }
  if (C10_UNLIKELY(planted(Plant::kSpend))) {
    spend(header, operands);
  }
  const IgnoreWarnings ignore; // the first run raised them
  aliases = build_aliases(header, operands);
  header.run(kernel, aliases);
  check_outputs(header, operands, aliases);
  for (const auto& result : results) {
    result.check(aliases[result.operand()]);
  }
}

accelError_t invoke(const void* payload) {
  const auto& header = *static_cast<const Header*>(payload);
  const auto* const kernel = static_cast<const char*>(payload) + sizeof(Header);
  const auto* const operands = kernel + aligned(header.kernel_bytes);
  Tensors aliases;
  accelError_t code = accelErrorLaunchFailure;
  std::string message;
  try {
    const ApplyHostState state(header.host);
    const CollectWarnings warnings;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    aliases = build_aliases(header, operands);
    header.run(kernel, aliases);
    check_outputs(header, operands, aliases);
    if (C10_UNLIKELY(header.twice)) {
      run_again(header, kernel, aliases);
    }
    return accelSuccess;
  } catch (const c10::OutOfMemoryError& error) {
    code = accelErrorOutOfMemory;
    message = error.what_without_backtrace();
  } catch (const c10::Error& error) {
    message = error.what_without_backtrace();
  } catch (const std::exception& error) {
    message = error.what();
  }
  accelSetKernelError((message + " (operands: " + describe_operands(aliases) + ")").c_str());
  return code;
}

// The class of arithmetic that a dtype's operations count in.
int flops_class(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
    case at::kComplexDouble:
      return accelFlopsF64;
    case at::kFloat:
    case at::kComplexFloat:
      return accelFlopsF32;
    case at::kHalf:
    case at::kBFloat16:
    case at::kComplexHalf:
      return accelFlopsF16;
    default:
      return c10::isFloat8Type(dtype) ? accelFlopsF8 : accelFlopsInt;
  }
}

} // namespace

namespace detail {

void* kernel_of(void* payload) {
  return static_cast<char*>(payload) + sizeof(Header);
}

Enqueued enqueue(
    const char* name,
    c10::Stream stream,
    c10::ArrayRef<Operand> operands,
    detail::Run run,
    const void* kernel,
    size_t kernel_bytes,
    void (*destroy)(void*),
    const Cost& cost,
    accelEngine engine,
    bool repeatable) {
  emit_collected_warnings();
  PreparedList prepared;
  std::optional<Captured> copies;
  c10::SmallVector<accelAccess, 8> accesses;
  size_t bytes = sizeof(Header) + aligned(kernel_bytes);
  for (const auto& operand : operands) {
    const int same = same_as(operand.tensor, prepared);
    prepared.push_back(
        same < 0 ? prepare(operand, copies)
                 : Prepared{
                       &operand.tensor,
                       Descriptor::head_bytes(0),
                       Place::kSame,
                       (operand.access & accelAccessWrite) != 0,
                       static_cast<uint16_t>(same)});
    const auto& last = prepared.back();
    bytes += last.bytes;
    uint32_t access = operand.access;
    if (C10_UNLIKELY(planted(Plant::kUndeclaredRead))) {
      access = last.written ? uint32_t{accelAccessWrite} : same >= 0 ? 0 : access;
    }
    if (last.place != Place::kUndefined && last.place != Place::kCaptured && access != 0) {
      accesses.push_back(access_of(operand.tensor, access));
    }
  }

  accelLaunchInfo info{};
  info.size = sizeof(info);
  info.name = name;
  info.engine = engine;
  info.cores = -1;
  std::fill(std::begin(info.bytes), std::end(info.bytes), -1);
  std::fill(std::begin(info.flops), std::end(info.flops), -1);
  info.flops[flops_class(cost.dtype)] = cost.flops;
  info.accesses = accesses.data();
  info.num_accesses = static_cast<uint32_t>(accesses.size());

  accelLaunch launch{};
  launch.size = sizeof(launch);
  launch.info = &info;
  launch.payload_bytes = bytes;
  launch.invoke = &invoke;
  launch.destroy = destroy;

  const auto host = HostState::of_this_thread();
  const bool twice = repeatable && runs_twice(accesses);
  auto* const target = native(stream);
  void* payload = nullptr;
  check(accelLaunchBegin(target, &launch, &payload));
  // Only plain writes until the commit: nothing here throws or waits.
  auto* at = static_cast<char*>(payload);
  ::new (at) Header{
      run,
      host,
      static_cast<uint32_t>(prepared.size()),
      static_cast<uint32_t>(kernel_bytes),
      twice};
  at += sizeof(Header);
  std::memcpy(at, kernel, kernel_bytes);
  at += aligned(kernel_bytes);
  for (const auto& operand : prepared) {
    describe(operand, reinterpret_cast<Descriptor*>(at));
    at += operand.bytes;
  }
  uint64_t ticket = 0;
  const auto code = accelLaunchCommit(target, &ticket);
  for (const auto& operand : prepared) {
    if (C10_UNLIKELY(operand.place == Place::kPinned)) {
      const auto& data = operand.tensor->storage().data_ptr();
      host_allocator()->record_event(data.get(), data.get_context(), stream);
    }
  }
  return {ticket, code};
}

uint64_t launch(
    const char* name,
    c10::Stream stream,
    c10::ArrayRef<Operand> operands,
    Run run,
    const void* kernel,
    size_t kernel_bytes,
    const Cost& cost,
    accelEngine engine) {
  const auto [ticket, code] =
      enqueue(name, stream, operands, run, kernel, kernel_bytes, nullptr, cost, engine);
  check(code);
  return ticket;
}

} // namespace detail

// ---- launch_and_wait

namespace {

// Shared by the waiting caller and the record, so that neither outlives it when the device is
// aborted in between.
struct Call {
  const std::function<void(at::TensorList)>* kernel;
  std::exception_ptr error;
  enum State { kQueued, kRunning, kDone, kAbandoned };
  std::atomic<int> state{kQueued};
};
using CallPtr = std::shared_ptr<Call>;

void run_call(const void* kernel, at::TensorList aliases) {
  auto& call = **static_cast<CallPtr* const*>(kernel);
  int queued = Call::kQueued;
  if (!call->state.compare_exchange_strong(queued, Call::kRunning)) {
    return; // the caller has left
  }
  try {
    (*call->kernel)(aliases);
  } catch (...) {
    call->error = std::current_exception();
  }
  call->state.store(Call::kDone, std::memory_order_release);
}

void destroy_call(void* payload) {
  delete *static_cast<CallPtr**>(detail::kernel_of(payload));
}

} // namespace

void launch_and_wait(
    const char* name,
    c10::Stream stream,
    c10::ArrayRef<Operand> operands,
    const std::function<void(at::TensorList)>& kernel,
    const char* caller,
    accelEngine engine) {
  if (C10_UNLIKELY(g_captures.load(std::memory_order_relaxed) != 0)) {
    forbid_in_capture(stream, c10::str(name, " (", caller, ")").c_str());
  }
  note_sync(name, caller);
  const auto call = std::make_shared<Call>();
  call->kernel = &kernel;
  auto owner = std::make_unique<CallPtr>(call);
  auto* const raw = owner.get();
  auto [ticket, code] = detail::enqueue(
      name, stream, operands, &run_call, &raw, sizeof(raw), &destroy_call, {}, engine, false);
  owner.release(); // the record's now
  if (code == accelSuccess) {
    code = accelStreamWaitTicket(native(stream), ticket, caller);
  }
  int queued = Call::kQueued;
  const bool dropped = call->state.compare_exchange_strong(queued, Call::kAbandoned);
  if (!dropped) {
    while (call->state.load(std::memory_order_acquire) == Call::kRunning) {
      std::this_thread::yield(); // aborted while the kernel still refers to our variables
    }
  }
  emit_collected_warnings();
  check(code);
  if (dropped) { // and the device has been reset before this thread looked again
    throw c10::AcceleratorError(
        {__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
        accelErrorAborted,
        c10::str("accel: ", name, " was dropped by a reset of ", stream.device()));
  }
  if (call->error) {
    std::rethrow_exception(call->error);
  }
}

} // namespace accel
