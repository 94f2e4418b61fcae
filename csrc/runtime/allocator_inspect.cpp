// The heap as others see it: segments for a snapshot, the owner of an address, the largest tenants.
#include <algorithm>

#include "allocator_heap.h"

namespace accel {

namespace {

c10::CachingDeviceAllocator::BlockInfo info_of(const Block& block, bool allocated) {
  c10::CachingDeviceAllocator::BlockInfo info;
  info.size = block.size;
  info.requested_size = block.idle ? 0 : block.requested;
  info.allocated = allocated;
  info.active = !block.idle;
  info.context_when_allocated = block.context;
  return info;
}

} // namespace

void Heap::append_segments(std::vector<SegmentInfo>& list, c10::MempoolId_t only) {
  merge_recent();
  for (const auto& [ptr, segment] : segments_) {
    const auto id = pool_id(*segment.pool);
    if (only != kGeneralPool && only != id) {
      continue;
    }
    SegmentInfo info;
    info.device = index_;
    info.address = reinterpret_cast<size_t>(ptr);
    info.total_size = segment.size;
    info.stream = segment.pool->stream;
    info.is_large = !segment.pool->small;
    info.owner_private_pool_id = id;
    info.context_when_allocated = segment.context;
    for (const auto* block = segment.head; block != nullptr; block = block->next) {
      const bool allocated = find(block->ptr) == block;
      const auto& one = info.blocks.emplace_back(info_of(*block, allocated));
      info.requested_size += one.requested_size;
      info.allocated_size += allocated ? one.size : 0;
      info.active_size += one.active ? one.size : 0;
    }
    list.push_back(std::move(info));
  }
}

std::optional<Owner> Heap::owner(const void* address) {
  merge_recent();
  auto it = segments_.upper_bound(address);
  if (it == segments_.begin()) {
    return std::nullopt;
  }
  const auto& segment = (--it)->second;
  const auto offset = static_cast<const char*>(address) - static_cast<const char*>(segment.ptr);
  if (static_cast<size_t>(offset) >= segment.size) {
    return std::nullopt;
  }
  const auto* block = segment.head;
  while (block->next != nullptr && block->next->ptr <= address) {
    block = block->next;
  }
  Owner owner{
      index_,
      reinterpret_cast<size_t>(segment.ptr),
      segment.size,
      reinterpret_cast<size_t>(block->ptr),
      info_of(*block, find(block->ptr) == block),
      segment.pool->stream,
      pool_id(*segment.pool)};
  if (block->idle) {
    owner.block.context_when_allocated = history.last_free(address);
  }
  return owner;
}

std::optional<Owner> owner_of(const void* address) {
  for (c10::DeviceIndex index = 0; is_initialized() && index < device_count(); ++index) {
    auto& heap = heap_of(index);
    std::lock_guard<std::mutex> lock(heap.mutex);
    if (auto owner = heap.owner(address)) {
      return owner;
    }
  }
  return std::nullopt;
}

std::vector<Tenants> Heap::tenants() const {
  std::map<std::pair<size_t, accelStream_t>, Tenants> groups;
  for (const auto& [ptr, block] : allocated_) {
    auto& group = groups[{block->size, block->pool->stream}];
    group.size = block->size;
    group.stream = block->pool->stream;
    ++group.count;
    group.context = block->context != nullptr ? block->context : group.context;
  }
  std::vector<Tenants> list;
  for (auto& [key, group] : groups) {
    list.push_back(std::move(group));
  }
  std::stable_sort(list.begin(), list.end(), [](const Tenants& a, const Tenants& b) {
    return a.size * a.count > b.size * b.count;
  });
  return list;
}

size_t Heap::allocated_in_private_pools() const {
  size_t bytes = 0;
  for (const auto& [ptr, block] : allocated_) {
    bytes += block->pool->owner != nullptr ? block->size : 0;
  }
  return bytes;
}

} // namespace accel
