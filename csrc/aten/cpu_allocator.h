// The process's CPU allocator with detours: while a thread redirects, what CPU kernels allocate on
// it comes from device memory; while it places, what has the size of an output becomes that output.
// Either way their results need no copy.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <c10/util/SmallVector.h>

#include <utility>
#include <vector>

namespace accel {

// Puts the detours before the CPU allocator in force. Called once, when the extension is loaded.
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

// While alive, one CPU allocation of this thread with the exact size of each of `outputs` gets that
// output's memory: a kernel that makes its results writes them where they belong. It is the first
// such allocation (and the next one after it was freed), or, with `ordinals`, the one that each
// output names: some kernels make temporaries of that size first.
class PlaceAllocations {
 public:
  // Contiguous or dense CPU tensors. No ordinals, or one each: -1 is made by no such allocation.
  explicit PlaceAllocations(at::TensorList outputs, c10::ArrayRef<int32_t> ordinals = {});
  ~PlaceAllocations();
  PlaceAllocations(const PlaceAllocations&) = delete;
  PlaceAllocations& operator=(const PlaceAllocations&) = delete;

  // The output whose memory `data` is, or -1.
  int index_of(const void* data) const;
  // Which allocation of the size of output `index` was `data`, or -1.
  int32_t ordinal_of(size_t index, const void* data) const;

 private:
  friend struct CpuAllocator;
  void* take(size_t bytes);
  bool give_back(const void* host);
  void note(size_t bytes, const void* host);

  struct Place {
    void* host;
    size_t bytes;
    int32_t ordinal;
    bool taken;
  };
  c10::SmallVector<Place, 4> places_;
  struct Made {
    size_t bytes;
    const void* host;
  };
  c10::SmallVector<Made, 8> made_; // the allocations that have the size of a place
  c10::SmallVector<std::pair<const void*, int>, 4> by_host_; // sorted: lists have thousands
  size_t first_free_ = 0; // all places before it are taken
  PlaceAllocations* outer_;
};

} // namespace accel
