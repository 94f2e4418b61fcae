// The process's CPU allocator with a detour: while a thread redirects, what CPU kernels allocate on
// it comes from device memory, so that their results need no copy.
#pragma once

#include <c10/core/Stream.h>

#include <vector>

namespace accel {

// Puts the detour before the CPU allocator in force. Called once, when the extension is loaded.
void install_cpu_allocator();

// While alive, CPU allocations of this thread are device memory of `stream` (as the host's alias).
// OpenMP teammates keep ordinary memory.
class RedirectAllocations {
 public:
  explicit RedirectAllocations(c10::Stream stream);
  ~RedirectAllocations();
  RedirectAllocations(const RedirectAllocations&) = delete;
  RedirectAllocations& operator=(const RedirectAllocations&) = delete;

  // Host addresses handed out since construction and not freed on this thread.
  std::vector<void*> outstanding() const {
    return outstanding_;
  }

 private:
  friend struct CpuAllocator;
  c10::Stream stream_;
  std::vector<void*> outstanding_;
  RedirectAllocations* outer_;
};

} // namespace accel
