// The one way onto a stream: launch(name, stream, {operands}, kernel).
//
// The call writes a record in place into the stream's ring: host state, the kernel object, one
// descriptor per operand. On the worker the record becomes CPU tensors over the same bytes (one
// alias storage per storage, so that torch's overlap checks hold) and the kernel runs on them.
// Operands:
//   - device tensors by descriptor; the stream-ordered allocator keeps their memory valid, no
//     reference is held
//   - pinned tensors by descriptor, protected by the host allocator's record_event
//   - other CPU tensors copied into the record at the call (contiguously), so they may change right
//     after it; read only
// After the kernel the outputs must still have the sizes, strides and memory of the record.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <c10/util/ArrayRef.h>

#include <functional>
#include <memory>
#include <type_traits>

#include "../driver/accel.h"
#include "../runtime/error.h"

namespace accel {

struct Operand {
  const at::Tensor& tensor; // may be undefined: the kernel then sees an undefined tensor
  uint32_t access; // accelAccessRead | accelAccessWrite
};
inline Operand reads(const at::Tensor& t) {
  return {t, accelAccessRead};
}
inline Operand writes(const at::Tensor& t) {
  return {t, accelAccessWrite};
}
// In place: read and written.
inline Operand updates(const at::Tensor& t) {
  return {t, accelAccessRead | accelAccessWrite};
}

// What a launch computes, for tracing and performance models. Unknown is -1, never 0.
struct Cost {
  int64_t flops = -1;
  at::ScalarType dtype = at::kFloat; // of the arithmetic
};

namespace detail {
using Run = void (*)(const void* kernel, at::TensorList aliases);
struct Enqueued {
  uint64_t ticket;
  accelError_t code; // of the launch itself, where ACCEL_LAUNCH_BLOCKING=1 waited for it
};
// Copies the kernel into a record. Throws only if nothing was enqueued; afterwards `destroy`, if
// any, is called once. A kernel that is not repeatable has state outside its record.
ACCEL_API Enqueued enqueue(
    const char* name,
    c10::Stream stream,
    c10::ArrayRef<Operand> operands,
    Run run,
    const void* kernel,
    size_t kernel_bytes,
    void (*destroy)(void* payload),
    const Cost& cost,
    accelEngine engine,
    bool repeatable = true);
// The kernel within a record's payload.
ACCEL_API void* kernel_of(void* payload);
// As enqueue, for kernels without a destructor; throws the code of a blocking launch.
ACCEL_API uint64_t launch(
    const char* name,
    c10::Stream stream,
    c10::ArrayRef<Operand> operands,
    Run run,
    const void* kernel,
    size_t kernel_bytes,
    const Cost& cost,
    accelEngine engine);
} // namespace detail

// Enqueues `kernel(at::TensorList aliases)`; aliases[i] is a CPU tensor over the bytes of
// operands[i]. The kernel holds scalars only: it is copied bytewise and may run twice. `name` must
// be a literal. Returns the ticket. Errors of the kernel rise at the next synchronisation.
template <class Kernel>
uint64_t launch(
    const char* name,
    c10::Stream stream,
    c10::ArrayRef<Operand> operands,
    const Kernel& kernel,
    const Cost& cost = {},
    accelEngine engine = accelEngineCompute) {
  static_assert(
      std::is_trivially_copyable_v<Kernel> && std::is_trivially_destructible_v<Kernel>,
      "a kernel is copied into the ring bytewise: capture scalars only");
  static_assert(alignof(Kernel) <= 16);
  return detail::launch(
      name,
      stream,
      operands,
      [](const void* k, at::TensorList aliases) { (*static_cast<const Kernel*>(k))(aliases); },
      &kernel,
      sizeof(Kernel),
      cost,
      engine);
}

// As launch, for a kernel that holds more than scalars: the record owns the object and deletes it
// after the last run, on any thread. It must hold no device tensor and no Python object.
template <class Kernel>
uint64_t launch(
    const char* name,
    c10::Stream stream,
    c10::ArrayRef<Operand> operands,
    std::unique_ptr<const Kernel> kernel,
    const Cost& cost = {}) {
  const auto* const raw = kernel.get();
  const auto [ticket, code] = detail::enqueue(
      name,
      stream,
      operands,
      [](const void* k, at::TensorList aliases) {
        (**static_cast<const Kernel* const*>(k))(aliases);
      },
      &raw,
      sizeof(raw),
      [](void* payload) { delete *static_cast<const Kernel**>(detail::kernel_of(payload)); },
      cost,
      accelEngineCompute);
  kernel.release(); // the record's now
  check(code);
  return ticket;
}

// As launch, and waits until it is complete; the kernel's exception is rethrown here with its own
// type. The kernel may refer to the caller's variables. Used by everything that must answer to the
// host (copies to pageable memory, item(), fallbacks). `caller` names the public function in the
// counters of waits.
ACCEL_API void launch_and_wait(
    const char* name,
    c10::Stream stream,
    c10::ArrayRef<Operand> operands,
    const std::function<void(at::TensorList)>& kernel,
    const char* caller,
    accelEngine engine = accelEngineCompute);

} // namespace accel
