// The caching allocator of device memory.
//
// Ticket rule: host code allocates and frees in enqueue order, workers in execution order. A free
// block carries the ticket of its stream at the free. A host allocation on that stream may take any
// block; a thread that uses memory at once (a worker inside a launch, or a caller inside
// ExecuteNow) only one whose ticket is complete.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <functional>
#include <memory>

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

// ---- Private pools: memory apart from all other, as CUDACachingAllocator's MempoolId_t has it.
// What is freed there serves again what is routed there. A pool lives by a count of its users;
// after the last release its idle segments may go back to the chip.

constexpr c10::MempoolId_t kGeneralPool{0, 0}; // no private pool
// Asked with the heap locked, at each allocation of the device: may lock nothing that is ever held
// while memory is allocated or freed.
using PoolFilter = std::function<bool(accelStream_t)>;

// A new id: {0, n} for a pool that users share (graph_pool_handle, MemPool), {n, 0} for one graph's
// own.
c10::MempoolId_t new_pool_id(bool shared = true);
// Makes the pool with a use count of 1, or adds 1.
void retain_pool(c10::DeviceIndex index, c10::MempoolId_t id);
void release_pool(c10::DeviceIndex index, c10::MempoolId_t id);
// 0 for a pool that is not there.
int pool_use_count(c10::DeviceIndex index, c10::MempoolId_t id);
// What the pool may do otherwise than the general ones: lend its free blocks to an allocation that
// would fail; never split a segment.
void set_pool_options(c10::DeviceIndex index, c10::MempoolId_t id, bool use_on_oom, bool no_split);

// retain_pool(), and from now on allocations on a stream that `filter` accepts come from the pool;
// of several filters the newest that accepts counts. For captures: a block that record_stream named
// on a captured stream is kept until the capture's end. Throws if the pool is begun already.
void begin_allocate_to_pool(c10::DeviceIndex index, c10::MempoolId_t id, PoolFilter filter);
// As begin_allocate_to_pool, for what this thread allocates, on whatever stream, and what a worker
// allocates in its stead.
void begin_allocate_this_thread_to_pool(c10::DeviceIndex index, c10::MempoolId_t id);
// Ends the routing; release_pool() is the caller's to call. Throws if it had not begun.
void end_allocate_to_pool(c10::DeviceIndex index, c10::MempoolId_t id);

// In whose name memory is allocated.
struct Requester {
  uint64_t thread = 0;
  std::shared_ptr<c10::GatheredContext> stack; // where the history records stacks

  static Requester of_this_thread();
};

// While alive, this thread, a worker, allocates in the name of a caller that waits for it.
class ActingFor {
 public:
  explicit ActingFor(const Requester& requester);
  ~ActingFor();
  ActingFor(const ActingFor&) = delete;
  ActingFor& operator=(const ActingFor&) = delete;

 private:
  const Requester* const outer_;
};

// ---- Limits

// The part of the device's memory, 0 to 1, that this process may reserve.
void set_memory_fraction(c10::DeviceIndex index, double fraction);
double memory_fraction(c10::DeviceIndex index);
// Off: outside private pools every allocation has a segment of its own, which goes back to the chip
// once it is free and its work complete (at the latest at the next allocation of the device).
void enable_caching(bool on);
bool caching_enabled();

} // namespace accel
