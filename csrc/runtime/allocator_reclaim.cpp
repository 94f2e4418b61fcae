// What the heap gives back to the chip, and what must end before it can.
#include <c10/core/AllocatorConfig.h>

#include <algorithm>

#include "allocator_heap.h"

namespace accel {

using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;

size_t Heap::release(size_t bytes, c10::MempoolId_t only, const Context& context) {
  merge_recent();
  size_t released = 0;
  if (only == kGeneralPool) {
    released += release_from(pools_, bytes, context);
  }
  for (auto& [id, pool] : private_pools_) {
    if (pool->use_count == 0 && (only == kGeneralPool || only == id) && released < bytes) {
      released += release_from(pool->pools, bytes - released, context);
    }
  }
  forget_unused_pools();
  return released;
}

size_t Heap::release_from(Pools& pools, size_t bytes, const Context& context) {
  size_t released = 0;
  for (auto& [stream, kinds] : pools) {
    const auto newest = completed(stream);
    for (auto& pool : kinds) {
      for (auto it = pool.free.end(); it != pool.free.begin() && released < bytes;) {
        auto* const block = *--it;
        if (block->is_split() || block->ticket > newest || accelFree(block->ptr) != accelSuccess) {
          continue;
        }
        released += block->size;
        count_segment(stats, pool, block->size, -1);
        history.record(
            TraceEntry::SEGMENT_FREE,
            block->ptr,
            block->size,
            stream,
            pool_id(pool),
            context != nullptr ? context : block->segment->context);
        segments_.erase(block->ptr);
        it = pool.free.erase(it);
        delete block;
      }
    }
  }
  return released;
}

void Heap::collect_garbage() {
  const auto threshold = Config::garbage_collection_threshold();
  size_t available = 0;
  size_t total = 0;
  if (threshold <= 0 || accelMemGetInfo(index_, &available, &total) != accelSuccess) {
    return;
  }
  const auto reserved = static_cast<double>(stats.reserved_bytes[0].current);
  const auto excess = reserved - threshold * static_cast<double>(std::min(total, allowed));
  if (excess > 0) {
    release(static_cast<size_t>(excess));
  }
}

std::vector<Ticket> Heap::outstanding(std::initializer_list<What> what, c10::MempoolId_t only) {
  merge_recent();
  std::unordered_map<accelStream_t, uint64_t> newest;
  const auto note = [&newest](accelStream_t stream, uint64_t ticket) {
    auto& value = newest[stream];
    value = std::max(value, ticket);
  };
  for (const auto kind : what) {
    if (kind == Deferred) {
      for (const auto& [stream, queue] : deferred_) {
        const auto last = std::find_if(queue.rbegin(), queue.rend(), [only](const auto& entry) {
          return only == kGeneralPool || pool_id(*entry.second->pool) == only;
        });
        if (last != queue.rend()) {
          note(stream, last->first);
        }
      }
      continue;
    }
    const auto note_idle = [&](const Pools& pools) {
      for (const auto& [stream, kinds] : pools) {
        for (const auto& pool : kinds) {
          for (const auto* const block : pool.free) {
            if (kind == Blocks || !block->is_split()) {
              note(stream, block->ticket);
            }
          }
        }
      }
    };
    if (only == kGeneralPool) {
      note_idle(pools_);
    }
    for (const auto& [id, pool] : private_pools_) {
      if ((only == kGeneralPool || only == id) && (kind == Blocks || pool->use_count == 0)) {
        note_idle(pool->pools);
      }
    }
  }
  std::vector<Ticket> tickets;
  for (const auto& [stream, value] : newest) {
    if (value > completed(stream)) {
      tickets.push_back({stream, value});
    }
  }
  return tickets;
}

size_t Heap::idle_bytes() {
  merge_recent();
  size_t bytes = 0;
  for (const auto& [ptr, segment] : segments_) {
    for (const auto* block = segment.head; block != nullptr; block = block->next) {
      bytes += block->idle ? block->size : 0;
    }
  }
  return bytes;
}

Heap::Stats Heap::current_stats() {
  merge_recent();
  return stats;
}

void Heap::reset_stats(bool peak) {
  merge_recent();
  const auto reset = [peak](c10::CachingAllocator::Stat& stat) {
    peak ? stat.reset_peak() : stat.reset_accumulated();
  };
  for (auto* const stat :
       {&stats.allocation,
        &stats.segment,
        &stats.active,
        &stats.inactive_split,
        &stats.allocated_bytes,
        &stats.reserved_bytes,
        &stats.active_bytes,
        &stats.inactive_split_bytes,
        &stats.requested_bytes}) {
    for (auto& one : *stat) {
      reset(one);
    }
  }
  for (auto& [id, stat] : stats.reserved_bytes_by_private_pools) {
    for (auto& one : stat) {
      reset(one);
    }
  }
  reset(stats.oversize_allocations);
  reset(stats.oversize_segments);
  if (!peak) {
    stats.num_alloc_retries = 0;
    stats.num_ooms = 0;
    stats.num_sync_all_streams = 0;
    stats.num_device_alloc = 0;
    stats.num_device_free = 0;
  }
}

} // namespace accel
