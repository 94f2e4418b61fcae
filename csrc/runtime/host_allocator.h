// Pinned host memory on torch's CachingHostAllocatorImpl.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

namespace accel {

at::HostAllocator* host_allocator();
// True if `ptr` lies in pinned memory of the chip. Lock-free; false before initialisation.
bool is_pinned_ptr(const void* ptr) noexcept;

} // namespace accel
