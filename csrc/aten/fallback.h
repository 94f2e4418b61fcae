// The zero-copy fallback: an operator without a kernel of ours runs its CPU kernel on the stream's
// own worker, over aliases of the device's bytes, with the CPU allocator redirected to device
// memory, while the caller waits. Results are adopted, aliasing is kept, nothing is copied. A CPU
// kernel written in Python runs on the caller's thread, once the stream is empty.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace accel {

// Boxed kernel: registered as the backend fallback and, by name, for operators whose composite
// kernel would otherwise win over the CPU's (fallback_ops.cpp).
void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

// For an operator that is queued as a rule, but not with these arguments: they need the kernel to
// see them, or to refuse them. Its errors come first: only a call that succeeds is a fallback.
void fallback_declined(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// ACCEL_FALLBACK=allow|warn|error. Throws for another value, naming the variable and the values.
void set_fallback_mode(const std::string& mode);
std::string fallback_mode();

// (operator with overload, times it fell back), most frequent first, since the start or the last
// reset.
std::vector<std::pair<std::string, int64_t>> fallback_counts();
void reset_fallback_counts();

// Bytes that CPU kernels allocated from device memory and that outlived their call without being a
// result; 0 unless a kernel caches a buffer.
int64_t leaked_workspace_bytes();

} // namespace accel
