#include "allocator.h"

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>

#include "allocator_heap.h"
#include "error.h"
#include "ipc.h"
#include "plant.h"

namespace accel {

namespace {

struct Settings {
  bool poison = false; // ACCEL_POISON: fill fresh and freed memory
  uint64_t fail_nth = 0; // ACCEL_ALLOC_FAIL_NTH: the allocation of the process that fails; 0 none
};

Settings read_settings() {
  Settings settings;
  if (const char* text = std::getenv("ACCEL_POISON"); text != nullptr && *text != '\0') {
    const std::string value = text;
    TORCH_CHECK(
        value == "0" || value == "1", "accel: ACCEL_POISON must be 0 or 1, got '", value, "'");
    settings.poison = value == "1";
  }
  if (const char* text = std::getenv("ACCEL_ALLOC_FAIL_NTH"); text != nullptr && *text != '\0') {
    char* end = nullptr;
    errno = 0;
    settings.fail_nth = std::strtoull(text, &end, 10);
    TORCH_CHECK(
        *text >= '0' && *text <= '9' && *end == '\0' && errno == 0,
        "accel: ACCEL_ALLOC_FAIL_NTH must be the number of an allocation (1, 2, ...), got '",
        text,
        "'");
  }
  return settings;
}

const Settings& settings() {
  static const Settings settings = read_settings();
  return settings;
}

thread_local int t_execute_now = 0;
std::atomic<bool> g_caching{true};

} // namespace

// Made with the first block, leaked: blocks are freed until the process ends.
Heap& heap_of(c10::DeviceIndex index) {
  static auto* const heaps = [] {
    lazy_init();
    auto* all = new std::vector<std::unique_ptr<Heap>>();
    for (c10::DeviceIndex i = 0; i < device_count(); ++i) {
      all->push_back(std::make_unique<Heap>(i, settings().poison));
    }
    return all;
  }();
  return *heaps->at(index);
}

Ticket this_record() {
  Ticket record;
  record.stream = accelStreamOfThisThread(&record.value);
  return record;
}

bool executes_now() {
  return t_execute_now > 0;
}

void wait_for(
    Heap& heap,
    std::initializer_list<Heap::What> what,
    const char* caller,
    c10::MempoolId_t only) {
  std::vector<Ticket> tickets;
  {
    std::lock_guard<std::mutex> lock(heap.mutex);
    tickets = heap.outstanding(what, only);
    heap.stats.num_sync_all_streams += tickets.empty() ? 0 : 1;
  }
  const RelaxedCapture relaxed; // what a ticket is of runs, whatever captures
  for (const auto& ticket : tickets) {
    check(accelStreamWaitTicket(ticket.stream, ticket.value, caller));
  }
}

namespace {

Block* find_memory(Heap& heap, Request& request) {
  const auto attempt = [&]() -> Block* {
    heap.settle();
    heap.route(request);
    auto* const block = heap.take(request);
    return block != nullptr ? block : heap.grow(request);
  };
  {
    std::lock_guard<std::mutex> lock(heap.mutex);
    if (auto* const block = attempt()) {
      return block;
    }
    ++heap.stats.num_alloc_retries;
    if (heap.release(SIZE_MAX, kGeneralPool, request.context) > 0) {
      if (auto* const block = heap.grow(request)) {
        return block;
      }
    }
    // A worker must not wait: the launches it would wait for may be behind its own. It raises, and
    // the thread that waits for it calls reclaim() and retries.
    if (request.record.stream != nullptr) {
      return heap.borrow(request);
    }
  }
  if (collect_shared() > 0) { // other processes have let go of memory
    std::lock_guard<std::mutex> lock(heap.mutex);
    if (auto* const block = attempt()) {
      return block;
    }
  }
  const auto after = [&](std::initializer_list<Heap::What> what) -> Block* {
    wait_for(heap, what, "memory.allocate");
    std::lock_guard<std::mutex> lock(heap.mutex);
    if (auto* const block = attempt()) {
      return block;
    }
    return heap.release(SIZE_MAX, kGeneralPool, request.context) > 0 ? heap.grow(request) : nullptr;
  };
  auto* block = request.now ? after({Heap::Deferred, Heap::Blocks}) : after({Heap::Deferred});
  if (block == nullptr) {
    block = after({Heap::Segments});
  }
  if (block == nullptr) {
    std::lock_guard<std::mutex> lock(heap.mutex);
    heap.route(request);
    block = heap.borrow(request);
  }
  return block;
}

void report_to_profiler(Heap& heap, c10::DeviceIndex index, void* ptr, int64_t change) {
  if (C10_LIKELY(!c10::memoryProfilingEnabled())) {
    return;
  }
  size_t allocated = 0;
  size_t reserved = 0;
  {
    std::lock_guard<std::mutex> lock(heap.mutex);
    allocated = heap.stats.allocated_bytes[0].current;
    reserved = heap.stats.reserved_bytes[0].current;
  }
  c10::reportMemoryUsageToProfiler(
      ptr, change, allocated, reserved, c10::Device(kDeviceType, index));
}

// In stream order, so before the block's ticket is taken. A block with users on other streams is
// poisoned by Heap::settle, once they are done.
void poison_before_free(Heap& heap, void* ptr, Ticket record) {
  Ticket order;
  size_t bytes = 0;
  bool own = false;
  {
    std::lock_guard<std::mutex> lock(heap.mutex);
    const auto* const block = heap.find(ptr);
    if (block == nullptr || !block->users.empty()) {
      return;
    }
    order.stream = block->pool->stream;
    // A graph would write at each replay, also to what is not its own, and to a stream that was
    // joined back already. Its next allocation poisons the block.
    if (capture_of(order.stream) != 0) {
      return;
    }
    bytes = block->size;
    own = block->taken_by(record);
  }
  if (own) {
    poison_now(ptr, bytes);
  } else {
    accelMemsetAsync(ptr, 0xFF, bytes, order.stream); // a worker whose ring is full goes without
  }
}

} // namespace

void* allocate(size_t bytes, c10::Stream stream) {
  lazy_init();
  return allocate(bytes, stream, this_record());
}

void* allocate(size_t bytes, c10::Stream stream, Ticket record) {
  if (bytes == 0) {
    return nullptr;
  }
  const auto index = stream.device_index();
  auto& heap = heap_of(index);
  Request request;
  request.requested = bytes;
  request.stream = native(stream);
  request.record = record;
  request.now = request.record.stream != nullptr || executes_now();
  request.context = context_for(RecordContext::STATE);
  if (C10_UNLIKELY(settings().fail_nth != 0)) {
    static std::atomic<uint64_t> number{0};
    if (number.fetch_add(1, std::memory_order_relaxed) + 1 == settings().fail_nth) {
      throw_out_of_memory(
          heap,
          index,
          request,
          "This failure was asked for by ACCEL_ALLOC_FAIL_NTH=" +
              std::to_string(settings().fail_nth) + ".");
    }
  }
  constexpr size_t kLimit = size_t{1} << 60; // rounding a larger size could overflow
  if (bytes > kLimit) {
    throw_out_of_memory(heap, index, request);
  }
  request.size = round_size(bytes);
  auto* const block = find_memory(heap, request);
  if (block == nullptr) {
    throw_out_of_memory(heap, index, request);
  }
  auto* const ptr = block->ptr;
  const auto size = block->size;
  accelBlockSet(ptr, size, static_cast<int>(stream.id()), 1);
  note_memory(accelTraceAllocate, ptr, size, {request.stream, 0});
  if (C10_UNLIKELY(settings().poison)) {
    if (request.now) {
      poison_now(ptr, size);
    } else {
      auto guard = make_data_ptr(ptr, stream.device());
      check(accelMemsetAsync(ptr, 0xFF, size, request.stream));
      guard.release_context();
    }
  }
  report_to_profiler(heap, index, ptr, static_cast<int64_t>(size));
  return ptr;
}

void free_block(void* ptr) noexcept {
  if (ptr == nullptr || in_bad_fork()) {
    return;
  }
  try {
    accelPointerAttributes attributes{};
    attributes.size = sizeof(attributes);
    if (accelPointerGetAttributes(ptr, &attributes) != accelSuccess) {
      return; // shut down
    }
    if (attributes.kind != accelMemoryDevice || attributes.block != ptr || !attributes.block_live) {
      LOG(ERROR) << "accel: " << ptr << " is freed, but it is not an allocated block";
      return;
    }
    const auto index = static_cast<c10::DeviceIndex>(attributes.device);
    auto& heap = heap_of(index);
    const auto record = this_record();
    const auto context = context_for(RecordContext::ALL);
    if (C10_UNLIKELY(settings().poison)) {
      poison_before_free(heap, ptr, record);
    }
    // Before the block is up for reuse, while the range is still ours.
    accelBlockSet(ptr, attributes.block_bytes, attributes.owner, 0);
    {
      std::lock_guard<std::mutex> lock(heap.mutex);
      if (auto* const block = heap.find(ptr)) {
        heap.free(block, record, context);
      }
    }
    report_to_profiler(heap, index, ptr, -static_cast<int64_t>(attributes.block_bytes));
  } catch (const std::exception& error) {
    LOG(ERROR) << "accel: freeing " << ptr << " failed: " << error.what();
  }
}

void set_memory_fraction(c10::DeviceIndex index, double fraction) {
  TORCH_CHECK(
      fraction >= 0 && fraction <= 1, "invalid fraction:", fraction, ". Please set within [0, 1].");
  index = checked_index(index);
  size_t total = 0;
  check(accelMemGetInfo(index, nullptr, &total));
  auto& heap = heap_of(index);
  std::lock_guard<std::mutex> lock(heap.mutex);
  heap.fraction = fraction;
  heap.allowed = static_cast<size_t>(fraction * static_cast<double>(total));
}

double memory_fraction(c10::DeviceIndex index) {
  auto& heap = heap_of(checked_index(index));
  std::lock_guard<std::mutex> lock(heap.mutex);
  return heap.fraction;
}

void enable_caching(bool on) {
  g_caching.store(on, std::memory_order_relaxed);
}

bool caching_enabled() {
  return g_caching.load(std::memory_order_relaxed);
}

c10::DataPtr make_data_ptr(void* ptr, c10::Device device) {
  return {ptr, ptr, &free_block, device};
}

ExecuteNow::ExecuteNow() {
  ++t_execute_now;
}

ExecuteNow::~ExecuteNow() {
  --t_execute_now;
}

bool reclaim(c10::DeviceIndex index, const char* caller) {
  auto& heap = heap_of(checked_index(index));
  collect_shared();
  wait_for(heap, {Heap::Deferred, Heap::Blocks}, caller);
  std::lock_guard<std::mutex> lock(heap.mutex);
  heap.settle();
  const auto released = heap.release();
  return released > 0 || heap.idle_bytes() > 0;
}

void record_stream(const c10::DataPtr& data, c10::Stream stream) {
  auto* const ptr = data.get_context();
  if (ptr == nullptr || data.get_deleter() != &free_block || in_bad_fork() ||
      C10_UNLIKELY(planted(Plant::kRecordStream))) {
    return;
  }
  auto* const user = native(stream);
  auto& heap = heap_of(data.device().index());
  std::lock_guard<std::mutex> lock(heap.mutex);
  if (auto* const block = heap.find(ptr)) {
    heap.add_user(block, user);
  }
}

} // namespace accel
