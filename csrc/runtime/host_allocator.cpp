#include "host_allocator.h"

#include <c10/util/Logging.h>

#include <atomic>
#include <cstring>

#include "error.h"
#include "stream.h"

namespace accel {

namespace {

// The event that guards a pinned block is the ticket of the stream that used it.
struct PinnedCache final : at::CachingHostAllocatorImpl<c10::Stream, Ticket> {
  using Base = at::CachingHostAllocatorImpl<c10::Stream, Ticket>;

  std::pair<void*, void*> allocate(size_t bytes) override {
    lazy_init(); // raises in a forked child, before anything is locked
    TORCH_CHECK(
        device_count() > 0,
        "accel: host memory is pinned for a device, and there is no accel device; ACCEL_DEVICES=0 "
        "hides the accel devices, unset it or leave pin_memory out");
    const auto block = Base::allocate(bytes);
    if (block.first != nullptr) {
      note_memory(accelTraceAllocate, block.first, bytes, {});
    }
    return block;
  }

  void copy_data(void* dest, const void* src, std::size_t bytes) const override {
    std::memcpy(dest, src, bytes);
  }

 private:
  void allocate_host_memory(size_t bytes, void** ptr) override {
    auto code = accelHostAlloc(bytes, ptr);
    if (code == accelErrorOutOfMemory) {
      empty_cache();
      code = accelHostAlloc(bytes, ptr);
    }
    TORCH_CHECK_WITH(
        OutOfMemoryError,
        code != accelErrorOutOfMemory,
        "accel out of pinned host memory. Tried to allocate ",
        c10::CachingAllocator::format_size(bytes),
        ": ",
        accelGetLastErrorMessage(),
        ". Free pinned tensors, or call torch.accel.empty_host_cache().");
    check(code);
  }

  void free_block(at::HostBlock<c10::Stream>* block) override {
    accelHostFree(block->ptr_);
  }

  void record_stream(std::optional<std::vector<Ticket>>& events, c10::Stream stream) override {
    events->push_back(last_ticket(native(stream)));
  }

  bool query_event(Ticket& ticket) override {
    return ticket.complete();
  }

  c10::Stream get_current_stream() const override {
    return current_stream();
  }

  bool stream_is_capturing(c10::Stream stream) const override {
    return capture_id(stream) != 0;
  }
};

void free_pinned(void* context) noexcept;

// In a forked child everything that would lock is a no-op.
struct PinnedAllocator final : at::CachingHostAllocatorInterface<PinnedCache, free_pinned> {
  bool record_event(void* ptr, void* context, c10::Stream stream) override {
    return !in_bad_fork() && impl_->record_event(ptr, context, stream);
  }
  void empty_cache() override {
    if (!in_bad_fork()) {
      impl_->empty_cache();
    }
  }
  at::HostStats get_stats() override {
    return in_bad_fork() ? at::HostStats() : impl_->getStats();
  }
  void reset_accumulated_stats() override {
    if (!in_bad_fork()) {
      impl_->resetAccumulatedStats();
    }
  }
  void reset_peak_stats() override {
    if (!in_bad_fork()) {
      impl_->resetPeakStats();
    }
  }
};

PinnedAllocator& pinned_allocator() {
  static auto* const allocator = new PinnedAllocator(); // leaked: used at exit
  return *allocator;
}

void free_pinned(void* context) noexcept {
  if (in_bad_fork()) {
    return;
  }
  try {
    pinned_allocator().free(context);
  } catch (const std::exception& error) {
    LOG(ERROR) << "accel: freeing pinned memory failed: " << error.what();
  }
}

} // namespace

at::HostAllocator* host_allocator() {
  return &pinned_allocator();
}

bool is_pinned_ptr(const void* ptr) noexcept {
  static std::atomic<uintptr_t> base{0};
  static std::atomic<uintptr_t> bytes{0};
  auto length = bytes.load(std::memory_order_acquire);
  if (length == 0) {
    accelAddressMap map{};
    map.size = sizeof(map);
    if (!is_initialized() || accelGetAddressMap(&map) != accelSuccess) {
      return false;
    }
    base.store(map.pinned_base, std::memory_order_relaxed);
    bytes.store(map.pinned_bytes, std::memory_order_release);
    length = map.pinned_bytes;
  }
  return reinterpret_cast<uintptr_t>(ptr) - base.load(std::memory_order_relaxed) < length;
}

REGISTER_HOST_ALLOCATOR(kDeviceType, host_allocator())

} // namespace accel
