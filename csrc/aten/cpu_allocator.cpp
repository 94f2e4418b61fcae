#include "cpu_allocator.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <functional>

#include "../runtime/allocator.h"
#include "../runtime/device.h"
#include "../runtime/plant.h"

namespace accel {

namespace {
thread_local RedirectAllocations* t_redirect = nullptr;
thread_local PlaceAllocations* t_place = nullptr;
} // namespace

struct CpuAllocator final : c10::Allocator {
  explicit CpuAllocator(c10::Allocator* base) : base_(base) {
    s_base_deleter = base->raw_deleter();
  }

  c10::DataPtr allocate(size_t bytes) override {
    if (C10_UNLIKELY(t_place != nullptr)) {
      if (void* const host = t_place->take(bytes)) {
        return {host, host, &deleter, c10::Device(c10::DeviceType::CPU)};
      }
      auto made = elsewhere(bytes);
      t_place->note(bytes, made.get());
      return made;
    }
    return elsewhere(bytes);
  }

  c10::DataPtr elsewhere(size_t bytes) {
    auto* const redirect = t_redirect;
    if (C10_LIKELY(redirect == nullptr) || bytes == 0) {
      return base_->allocate(bytes);
    }
    void* const host = host_address(accel::allocate(bytes, redirect->stream_));
    redirect->outstanding_.push_back(host);
    // Context == data: kernels may use raw_allocate, which demands it.
    return {host, host, &deleter, c10::Device(c10::DeviceType::CPU)};
  }

  // One constant deleter for both kinds of pointer, since raw_deallocate may see either.
  c10::DeleterFnPtr raw_deleter() const override {
    return &deleter;
  }

  void copy_data(void* dest, const void* src, std::size_t count) const override {
    base_->copy_data(dest, src, count);
  }

 private:
  static void deleter(void* host) {
    if (t_place != nullptr && t_place->give_back(host)) {
      return;
    }
    if (!is_arena_address(host)) {
      s_base_deleter(host);
      return;
    }
    if (auto* const redirect = t_redirect) {
      auto& list = redirect->outstanding_;
      list.erase(std::remove(list.begin(), list.end(), host), list.end());
    }
    free_block(device_address(host));
  }

  c10::Allocator* base_;
  static inline c10::DeleterFnPtr s_base_deleter = nullptr;
};

void install_cpu_allocator() {
  static auto* const allocator = new CpuAllocator(c10::GetCPUAllocator()); // torch keeps it
  c10::SetCPUAllocator(allocator, /*priority=*/1);
}

RedirectAllocations::RedirectAllocations(c10::Stream stream) : stream_(stream), outer_(t_redirect) {
  t_redirect = this;
}

RedirectAllocations::~RedirectAllocations() {
  t_redirect = outer_;
}

PlaceAllocations::PlaceAllocations(at::TensorList outputs, c10::ArrayRef<int32_t> ordinals)
    : outer_(t_place) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto& output = outputs[i];
    const int32_t ordinal = ordinals.empty() ? -1 : ordinals[i];
    if (output.defined() && output.numel() > 0) {
      const bool never = !ordinals.empty() && ordinal < 0;
      places_.push_back({output.data_ptr(), output.nbytes(), ordinal, never});
    } else {
      places_.push_back({nullptr, 0, -1, true});
    }
    by_host_.emplace_back(places_.back().host, static_cast<int>(by_host_.size()));
  }
  std::sort(by_host_.begin(), by_host_.end());
  t_place = this;
}

PlaceAllocations::~PlaceAllocations() {
  t_place = outer_;
}

int PlaceAllocations::index_of(const void* data) const {
  if (data == nullptr) {
    return -1;
  }
  const auto found = std::lower_bound(
      by_host_.begin(), by_host_.end(), data, [](const auto& entry, const void* host) {
        return std::less<const void*>()(entry.first, host);
      });
  return found != by_host_.end() && found->first == data ? found->second : -1;
}

int32_t PlaceAllocations::ordinal_of(size_t index, const void* data) const {
  int32_t ordinal = -1;
  int32_t next = 0;
  for (const auto& made : made_) {
    if (made.bytes == places_[index].bytes) {
      ordinal = made.host == data ? next : ordinal; // the last: memory is used again
      ++next;
    }
  }
  return ordinal;
}

void* PlaceAllocations::take(size_t bytes) {
  if (C10_UNLIKELY(planted(Plant::kPlacement))) {
    return nullptr;
  }
  const auto ordinal = std::count_if(
      made_.begin(), made_.end(), [bytes](const Made& made) { return made.bytes == bytes; });
  while (first_free_ < places_.size() && places_[first_free_].taken) {
    ++first_free_;
  }
  for (size_t i = first_free_; i < places_.size(); ++i) {
    auto& place = places_[i];
    if (!place.taken && place.bytes == bytes && (place.ordinal < 0 || place.ordinal == ordinal)) {
      place.taken = true;
      note(bytes, place.host);
      return place.host;
    }
  }
  return nullptr;
}

void PlaceAllocations::note(size_t bytes, const void* host) {
  constexpr size_t kNoted = 64; // a result that is made later is not looked for
  const auto fits = [bytes](const Place& place) { return place.bytes == bytes; };
  if (made_.size() < kNoted && std::any_of(places_.begin(), places_.end(), fits)) {
    made_.push_back({bytes, host});
  }
}

bool PlaceAllocations::give_back(const void* host) {
  const int index = index_of(host);
  if (index >= 0) {
    places_[index].taken = false;
    first_free_ = std::min(first_free_, static_cast<size_t>(index));
  }
  return index >= 0;
}

} // namespace accel
