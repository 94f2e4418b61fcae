// The caching allocator of device memory.
//
// Ticket rule: host code allocates and frees in enqueue order, workers in execution order. A free
// block carries the ticket of its stream at the free. A host allocation on that stream may take any
// block; a thread that uses memory at once (a worker inside a launch, or a caller inside
// ExecuteNow) only one whose ticket is complete.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include "stream.h"

namespace accel {

// The allocator registered for kDeviceType. DataPtr context == data pointer; one constant deleter.
c10::DeviceAllocator* device_allocator();

// Device memory on `stream`'s pool; null for 0 bytes. Throws c10::OutOfMemoryError.
void* allocate(size_t bytes, c10::Stream stream);
// Frees a block of allocate(). Never throws; does nothing after shutdown or in a forked child.
void free_block(void* device_pointer) noexcept;

// Wraps a device block in a DataPtr for `device`, with the allocator's deleter.
c10::DataPtr make_data_ptr(void* device_pointer, c10::Device device);

// While alive, allocations of this thread obey the worker's half of the ticket rule: the memory
// will be used right now by host code (fallbacks on the caller's thread, NumPy kernels). Workers
// obey it always.
class ExecuteNow {
 public:
  ExecuteNow();
  ~ExecuteNow();
  ExecuteNow(const ExecuteNow&) = delete;
  ExecuteNow& operator=(const ExecuteNow&) = delete;
};

// For a caller whose work ran out of memory on a worker: waits until every free block may be used
// by any thread, the frees that record_stream deferred included, and returns whole cached segments
// to the chip. Never called with a lock held or on a worker. Returns false if there is no free
// memory at all, so that trying again is pointless.
bool reclaim(c10::DeviceIndex index, const char* caller);

// Notes that `stream` uses the block of `data`: its reuse waits for the work enqueued there until
// the free. Data of another allocator is ignored.
void record_stream(const c10::DataPtr& data, c10::Stream stream);

} // namespace accel
