// The face of the caching allocator that torch's core sees.
#include <c10/core/AllocatorConfig.h>
#include <c10/util/Exception.h>

#include <cstring>

#include "allocator.h"
#include "allocator_heap.h"
#include "error.h"

namespace accel {

namespace {

class CachingAllocator final : public c10::DeviceAllocator {
 public:
  // False in a forked child too, where nothing may be locked.
  bool initialized() override {
    return is_initialized() && !in_bad_fork();
  }

  c10::DataPtr allocate(size_t bytes) override {
    lazy_init();
    const auto record = this_record();
    const auto stream = record.stream != nullptr ? from_native(record.stream) : current_stream();
    return make_data_ptr(accel::allocate(bytes, stream, record), stream.device());
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return &free_block;
  }

  void copy_data(void* dest, const void* src, std::size_t bytes) const override {
    if (this_record().stream != nullptr || executes_now()) {
      std::memcpy(host_address(dest), host_address(src), bytes);
    } else {
      check(accelMemcpyAsync(dest, src, bytes, native(current_stream()), "Allocator.copy_data"));
    }
  }

  // A private pool that somebody uses keeps its memory, as in torch.cuda.
  void emptyCache(c10::MempoolId_t pool) override {
    if (!initialized()) {
      return;
    }
    forbid_in_capture(current_stream(), "empty_cache");
    const auto context = context_for(RecordContext::ALL);
    for (c10::DeviceIndex index = 0; index < device_count(); ++index) {
      auto& heap = heap_of(index);
      if (this_record().stream == nullptr) {
        wait_for(heap, {Heap::Deferred, Heap::Segments}, "memory.empty_cache", pool);
      }
      std::lock_guard<std::mutex> lock(heap.mutex);
      heap.settle();
      heap.release(SIZE_MAX, pool, context);
    }
  }

  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    record_stream(data, stream);
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const auto index = checked_index(device);
    if (!initialized()) {
      return {};
    }
    auto& heap = heap_of(index);
    std::lock_guard<std::mutex> lock(heap.mutex);
    auto stats = heap.current_stats();
    stats.max_split_size =
        static_cast<int64_t>(c10::CachingAllocator::AcceleratorAllocatorConfig::max_split_size());
    return stats;
  }

  void resetAccumulatedStats(c10::DeviceIndex device) override {
    reset(device, /*peak=*/false);
  }

  void resetPeakStats(c10::DeviceIndex device) override {
    reset(device, /*peak=*/true);
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    lazy_init();
    std::pair<size_t, size_t> info; // free, total
    check(accelMemGetInfo(checked_index(device), &info.first, &info.second));
    return info;
  }

 private:
  void reset(c10::DeviceIndex device, bool peak) {
    const auto index = checked_index(device);
    if (!initialized()) {
      return;
    }
    auto& heap = heap_of(index);
    std::lock_guard<std::mutex> lock(heap.mutex);
    heap.reset_stats(peak);
  }
};

} // namespace

c10::DeviceAllocator* device_allocator() {
  static auto* const allocator = new CachingAllocator(); // leaked: used at exit
  return allocator;
}

REGISTER_ALLOCATOR(kDeviceType, device_allocator())

} // namespace accel
