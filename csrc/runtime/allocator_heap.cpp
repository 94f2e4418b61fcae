#include "allocator_heap.h"

#include <c10/core/AllocatorConfig.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "allocator.h"
#include "error.h"
#include "plant.h"

namespace accel {

namespace {

using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;

bool should_split(const Block& block, size_t size) {
  const auto* const owner = block.pool->owner;
  if (owner != nullptr ? owner->no_split : !caching_enabled()) {
    return false;
  }
  const auto rest = block.size - size;
  return block.pool->small
      ? rest >= c10::CachingAllocator::kMinBlockSize
      : size < Config::max_split_size() && rest > c10::CachingAllocator::kSmallSize;
}

size_t segment_size(size_t size) {
  if (size <= c10::CachingAllocator::kSmallSize) {
    return c10::CachingAllocator::kSmallBuffer;
  }
  if (size < c10::CachingAllocator::kMinLargeAlloc) {
    return std::max(Config::large_segment_size(), size);
  }
  constexpr auto step = c10::CachingAllocator::kRoundLarge;
  return (size + step - 1) / step * step;
}

} // namespace

void count_segment(Heap::Stats& stats, const Pool& pool, size_t size, int sign) {
  const auto bytes = sign * static_cast<int64_t>(size);
  ++(sign > 0 ? stats.num_device_alloc : stats.num_device_free);
  count(stats.segment, pool, sign);
  count(stats.reserved_bytes, pool, bytes);
  if (size >= Config::max_split_size()) {
    sign > 0 ? stats.oversize_segments.increase(1) : stats.oversize_segments.decrease(1);
  }
  if (auto* const owner = pool.owner) {
    owner->segments += sign;
    count(stats.reserved_bytes_by_private_pools[owner->id], pool, bytes);
  }
}

bool BySize::operator()(const Block* a, const Block* b) const {
  return a->size != b->size ? a->size < b->size : std::less<>()(a->ptr, b->ptr);
}

bool BySize::operator()(const Block* a, size_t size) const {
  return a->size < size;
}

size_t round_size(size_t bytes) {
  constexpr auto granule = c10::CachingAllocator::kMinBlockSize;
  if (bytes < granule) {
    return granule;
  }
  const auto divisions = Config::roundup_power2_divisions(bytes);
  if (divisions > 1 && bytes > granule * divisions) {
    const auto power = c10::llvm::PowerOf2Floor(bytes);
    const auto step = power / c10::llvm::PowerOf2Floor(divisions);
    return (bytes + step - 1) / step * step;
  }
  return (bytes + granule - 1) / granule * granule;
}

uint64_t completed(accelStream_t stream) {
  uint64_t ticket = 0;
  return accelStreamGetTickets(stream, nullptr, &ticket) == accelSuccess ? ticket : 0;
}

void poison_now(void* ptr, size_t bytes) {
  std::memset(host_address(ptr), 0xFF, bytes);
}

Pool& Heap::pool_of(const Request& request, bool now) {
  const bool small = request.size <= c10::CachingAllocator::kSmallSize;
  auto& pools = request.owner != nullptr ? request.owner->pools : pools_;
  auto& pool = pools[request.stream][(now ? 2 : 0) + (small ? 0 : 1)];
  pool.stream = request.stream;
  pool.small = small;
  pool.owner = request.owner;
  return pool;
}

Block* Heap::take(const Request& request) {
  if (request.owner == nullptr && !caching_enabled()) {
    release(SIZE_MAX, kGeneralPool, request.context);
    return nullptr;
  }
  auto* const block = take_from(pool_of(request, request.now), request);
  return block != nullptr ? block : take_from(pool_of(request, !request.now), request);
}

Block* Heap::take_from(Pool& pool, const Request& request) {
  if (pool.num_recent == 0 && pool.free.empty()) {
    return nullptr;
  }
  const bool only_complete = request.now && !planted(Plant::kTicketRule);
  const auto newest = only_complete ? completed(pool.stream) : UINT64_MAX;
  if (auto* const block = take_recent(pool, request.size, newest)) {
    return hand_out(block, request);
  }
  merge_recent(pool);
  const auto max_split = Config::max_split_size();
  for (auto it = pool.free.lower_bound(request.size); it != pool.free.end(); ++it) {
    auto* const block = *it;
    // Oversize blocks are not split: they serve oversize requests of about their size only.
    if (request.size < max_split
            ? block->size >= max_split
            : block->size >= request.size + Config::max_non_split_rounding_size()) {
      return nullptr;
    }
    if (block->ticket <= newest) {
      block->node = pool.free.extract(it);
      block->idle = false;
      split(block, request.size);
      return hand_out(block, request);
    }
  }
  return nullptr;
}

Block* Heap::grow(const Request& request) {
  collect_garbage();
  const auto size = segment_size(request.size);
  if (static_cast<size_t>(stats.reserved_bytes[0].current) + size > allowed) {
    return nullptr;
  }
  void* ptr = nullptr;
  const auto code = accelMalloc(index_, size, &ptr);
  if (code == accelErrorOutOfMemory) {
    return nullptr;
  }
  check(code);
  auto* const block = new Block();
  block->ptr = ptr;
  block->size = size;
  block->pool = &pool_of(request, request.now);
  block->segment = &segments_[ptr];
  *block->segment = {ptr, size, request.requested, block->pool, block, request.context};
  count_segment(stats, *block->pool, size, 1);
  history.record(
      TraceEntry::SEGMENT_ALLOC, ptr, size, request.stream, pool_id(*block->pool), request.context);
  split(block, request.size);
  return hand_out(block, request);
}

// The block is out of the free set; what is beyond `size` goes back there.
void Heap::split(Block* block, size_t size) {
  auto& pool = *block->pool;
  const bool was_split = block->is_split();
  if (should_split(*block, size)) {
    auto* const rest = new Block();
    rest->ptr = static_cast<char*>(block->ptr) + size;
    rest->size = block->size - size;
    rest->pool = &pool;
    rest->segment = block->segment;
    rest->ticket = block->ticket;
    rest->prev = block;
    rest->next = block->next;
    if (rest->next != nullptr) {
      rest->next->prev = rest;
    }
    block->next = rest;
    block->size = size;
    insert(rest);
    if (was_split) {
      count(stats.inactive_split_bytes, pool, -static_cast<int64_t>(block->size));
    } else {
      count(stats.inactive_split, pool, 1);
      count(stats.inactive_split_bytes, pool, static_cast<int64_t>(rest->size));
    }
  } else if (was_split) {
    count(stats.inactive_split, pool, -1);
    count(stats.inactive_split_bytes, pool, -static_cast<int64_t>(block->size));
  }
}

// The block is nobody's and of the request's size.
Block* Heap::hand_out(Block* block, const Request& request) {
  const auto& pool = *block->pool;
  block->requested = request.requested;
  block->born = request.record;
  block->context = request.context;
  allocated_.emplace(block->ptr, block);
  const auto size = static_cast<int64_t>(block->size);
  count(stats.allocation, pool, 1);
  count(stats.allocated_bytes, pool, size);
  count(stats.active, pool, 1);
  count(stats.active_bytes, pool, size);
  count(stats.requested_bytes, pool, static_cast<int64_t>(block->requested));
  if (block->size >= Config::max_split_size()) {
    stats.oversize_allocations.increase(1);
  }
  history.record(
      TraceEntry::ALLOC, block->ptr, block->requested, pool.stream, pool_id(pool), block->context);
  return block;
}

Block* Heap::find(void* ptr) const {
  const auto it = allocated_.find(ptr);
  return it == allocated_.end() ? nullptr : it->second;
}

void Heap::add_user(Block* block, accelStream_t stream) {
  auto& users = block->users;
  if (stream != block->pool->stream &&
      std::find(users.begin(), users.end(), stream) == users.end()) {
    users.push_back(stream);
  }
}

void Heap::free(Block* block, Ticket record, const Context& context) {
  auto& pool = *block->pool;
  allocated_.erase(block->ptr);
  count(stats.allocation, pool, -1);
  count(stats.allocated_bytes, pool, -static_cast<int64_t>(block->size));
  if (block->size >= Config::max_split_size()) {
    stats.oversize_allocations.decrease(1);
  }
  history.record(
      TraceEntry::FREE_REQUESTED,
      block->ptr,
      block->requested,
      pool.stream,
      pool_id(pool),
      context != nullptr ? context : block->context);
  // What a launch took and gives back itself, its worker may reuse at once. Any other block may be
  // named by launches still in the queue.
  block->ticket = block->taken_by(record) ? record.value - 1 : last_ticket(pool.stream).value;
  if (C10_LIKELY(block->users.empty())) {
    complete_free(block, context != nullptr ? context : block->context);
    keep_recent(block);
  } else if (captured(block)) {
    until_capture_ends_.push_back(block);
  } else {
    defer(block);
    settle();
  }
}

// The block is idle when its users have got as far as they are now.
void Heap::defer(Block* block) {
  if (poison_) {
    block->users.push_back(block->pool->stream); // settle() then poisons what nobody uses any more
  }
  block->pending_users = block->users.size();
  for (auto* const user : block->users) {
    deferred_[user].emplace_back(last_ticket(user).value, block);
  }
  num_deferred_ += block->users.size();
  block->users.clear();
}

void Heap::settle() {
  if (num_deferred_ == 0) {
    return;
  }
  for (auto& [stream, queue] : deferred_) {
    const auto newest = completed(stream);
    while (!queue.empty() && queue.front().first <= newest) {
      const auto [ticket, block] = queue.front();
      queue.pop_front();
      note_memory(accelTraceComplete, block->ptr, block->size, {stream, ticket});
      --num_deferred_;
      if (--block->pending_users == 0) {
        if (poison_) {
          poison_now(block->ptr, block->size);
        }
        complete_free(block, block->context);
        merge(block);
      }
    }
  }
}

// Nobody uses the block any more.
void Heap::complete_free(Block* block, const Context& context) {
  const auto& pool = *block->pool;
  history.record(
      TraceEntry::FREE_COMPLETED,
      block->ptr,
      block->requested,
      pool.stream,
      pool_id(pool),
      context);
  block->context = nullptr;
  count(stats.active, pool, -1);
  count(stats.active_bytes, pool, -static_cast<int64_t>(block->size));
  count(stats.requested_bytes, pool, -static_cast<int64_t>(block->requested));
}

void Heap::keep_recent(Block* block) {
  auto& pool = *block->pool;
  if (pool.num_recent == pool.recent.size()) {
    merge_recent(pool);
  }
  pool.recent[pool.num_recent++] = block;
}

// The newest of exactly `size` bytes whose ticket is not after `newest`, or null.
Block* Heap::take_recent(Pool& pool, size_t size, uint64_t newest) {
  auto* const first = pool.recent.data();
  for (auto* it = first + pool.num_recent; it-- != first;) {
    auto* const block = *it;
    if (block->size == size && block->ticket <= newest) {
      std::copy(it + 1, first + pool.num_recent--, it);
      return block;
    }
  }
  return nullptr;
}

void Heap::merge_recent(Pool& pool) {
  for (size_t i = 0; i < pool.num_recent; ++i) {
    merge(pool.recent[i]);
  }
  pool.num_recent = 0;
}

void Heap::merge_recent() {
  const auto merge_in = [this](Pools& pools) {
    for (auto& [stream, kinds] : pools) {
      for (auto& pool : kinds) {
        merge_recent(pool);
      }
    }
  };
  merge_in(pools_);
  for (auto& [id, pool] : private_pools_) {
    merge_in(pool->pools);
  }
}

// Merges the block with its idle neighbours and puts it into the free set.
void Heap::merge(Block* block) {
  const auto& pool = *block->pool;
  int64_t blocks = 0;
  int64_t bytes = 0;
  for (auto* const neighbour : {block->prev, block->next}) {
    if (neighbour != nullptr && neighbour->idle) {
      bytes -= static_cast<int64_t>(absorb(block, neighbour));
      --blocks;
    }
  }
  if (block->is_split()) {
    bytes += static_cast<int64_t>(block->size);
    ++blocks;
  }
  count(stats.inactive_split, pool, blocks);
  count(stats.inactive_split_bytes, pool, bytes);
  insert(block);
}

size_t Heap::absorb(Block* block, Block* neighbour) {
  const auto size = neighbour->size;
  auto node = block->pool->free.extract(neighbour);
  if (block->node.empty()) {
    block->node = std::move(node);
  }
  if (neighbour == block->prev) {
    block->ptr = neighbour->ptr;
    block->prev = neighbour->prev;
    (block->prev != nullptr ? block->prev->next : block->segment->head) = block;
  } else {
    block->next = neighbour->next;
    if (block->next != nullptr) {
      block->next->prev = block;
    }
  }
  block->size += size;
  block->ticket = std::max(block->ticket, neighbour->ticket);
  delete neighbour;
  return size;
}

void Heap::insert(Block* block) {
  block->idle = true;
  if (block->node.empty()) {
    block->pool->free.insert(block);
  } else {
    block->node.value() = block;
    block->pool->free.insert(std::move(block->node));
  }
}

} // namespace accel
