// Private pools: which allocations go where, and who keeps a pool alive.
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>

#include "allocator_heap.h"

namespace accel {

namespace {

thread_local const Requester* t_acting_for = nullptr;

uint64_t this_thread() {
  static std::atomic<uint64_t> threads{0};
  thread_local const uint64_t number = ++threads;
  return number;
}

uint64_t acting_thread() {
  return t_acting_for != nullptr ? t_acting_for->thread : this_thread();
}

} // namespace

void Heap::route(Request& request) const {
  request.owner = nullptr;
  for (auto it = routes_.rbegin(); it != routes_.rend(); ++it) {
    if (it->filter(request.stream)) {
      request.owner = private_pool(it->id);
      return;
    }
  }
}

Block* Heap::borrow(const Request& request) {
  if (request.owner != nullptr) {
    return nullptr;
  }
  for (const auto& [id, pool] : private_pools_) {
    if (pool->use_on_oom) {
      auto lent = request;
      lent.owner = pool.get();
      if (auto* const block = take(lent)) {
        return block;
      }
    }
  }
  return nullptr;
}

PrivatePool* Heap::private_pool(c10::MempoolId_t id) const {
  const auto it = private_pools_.find(id);
  return it == private_pools_.end() ? nullptr : it->second.get();
}

PrivatePool& Heap::retain_pool(c10::MempoolId_t id) {
  TORCH_CHECK(id != kGeneralPool, "accel: (0, 0) is not the id of a private memory pool");
  if (auto* const pool = private_pool(id)) {
    ++pool->use_count;
    return *pool;
  }
  return *private_pools_.emplace(id, std::make_unique<PrivatePool>(id)).first->second;
}

void Heap::release_pool(c10::MempoolId_t id) {
  auto* const pool = private_pool(id);
  TORCH_CHECK(
      pool != nullptr && pool->use_count > 0,
      "accel: release_pool: nobody uses a memory pool (",
      id.first,
      ", ",
      id.second,
      ") on accel:",
      static_cast<int>(index_));
  --pool->use_count;
  forget_unused_pools();
}

void Heap::forget_unused_pools() {
  std::erase_if(private_pools_, [](const auto& entry) {
    return entry.second->use_count == 0 && entry.second->segments == 0;
  });
}

void Heap::begin_route(c10::MempoolId_t id, PoolFilter filter, bool capture) {
  const bool begun = std::any_of(
      routes_.begin(), routes_.end(), [&](const Route& route) { return route.id == id; });
  TORCH_CHECK(!begun, "beginAllocateToPool: already recording to mempool_id");
  routes_.reserve(routes_.size() + 1);
  retain_pool(id);
  routes_.push_back({id, std::move(filter), capture});
}

void Heap::end_route(c10::MempoolId_t id) {
  const auto it = std::find_if(
      routes_.begin(), routes_.end(), [&](const Route& route) { return route.id == id; });
  TORCH_CHECK(it != routes_.end(), "endAllocatePool: not currently recording to mempool_id");
  routes_.erase(it);
  if (std::none_of(routes_.begin(), routes_.end(), [](const Route& r) { return r.capture; })) {
    for (auto* const block : std::exchange(until_capture_ends_, {})) {
      defer(block);
    }
    settle();
  }
}

bool Heap::captured(const Block* block) const {
  return std::any_of(routes_.begin(), routes_.end(), [&](const Route& route) {
    return route.capture && std::any_of(block->users.begin(), block->users.end(), route.filter);
  });
}

c10::MempoolId_t new_pool_id(bool shared) {
  static std::atomic<c10::CaptureId_t> ids{0};
  static std::atomic<c10::CaptureId_t> shared_ids{0};
  return shared ? c10::MempoolId_t(0, ++shared_ids) : c10::MempoolId_t(++ids, 0);
}

namespace {

template <class Function>
auto locked(c10::DeviceIndex index, Function&& function) {
  auto& heap = heap_of(checked_index(index));
  std::lock_guard<std::mutex> lock(heap.mutex);
  return function(heap);
}

} // namespace

void retain_pool(c10::DeviceIndex index, c10::MempoolId_t id) {
  locked(index, [&](Heap& heap) { heap.retain_pool(id); });
}

void release_pool(c10::DeviceIndex index, c10::MempoolId_t id) {
  locked(index, [&](Heap& heap) { heap.release_pool(id); });
}

int pool_use_count(c10::DeviceIndex index, c10::MempoolId_t id) {
  return locked(index, [&](Heap& heap) {
    const auto* const pool = heap.private_pool(id);
    return pool == nullptr ? 0 : pool->use_count;
  });
}

void set_pool_options(c10::DeviceIndex index, c10::MempoolId_t id, bool use_on_oom, bool no_split) {
  locked(index, [&](Heap& heap) {
    auto* const pool = heap.private_pool(id);
    TORCH_CHECK(
        pool != nullptr, "accel: there is no memory pool (", id.first, ", ", id.second, ")");
    pool->use_on_oom = use_on_oom;
    pool->no_split = no_split;
  });
}

void begin_allocate_to_pool(c10::DeviceIndex index, c10::MempoolId_t id, PoolFilter filter) {
  locked(index, [&](Heap& heap) { heap.begin_route(id, std::move(filter), /*capture=*/true); });
}

void begin_allocate_this_thread_to_pool(c10::DeviceIndex index, c10::MempoolId_t id) {
  locked(index, [&](Heap& heap) {
    heap.begin_route(
        id,
        [thread = acting_thread()](accelStream_t) { return acting_thread() == thread; },
        /*capture=*/false);
  });
}

void end_allocate_to_pool(c10::DeviceIndex index, c10::MempoolId_t id) {
  locked(index, [&](Heap& heap) { heap.end_route(id); });
}

Requester Requester::of_this_thread() {
  return {acting_thread(), context_for(RecordContext::STATE)};
}

ActingFor::ActingFor(const Requester& requester) : outer_(t_acting_for) {
  t_acting_for = &requester;
}

ActingFor::~ActingFor() {
  t_acting_for = outer_;
}

const Requester* acting_for() {
  return t_acting_for;
}

} // namespace accel
