#include "address_map.h"

#include <algorithm>
#include <iterator>

#include "os_linux.h"

namespace accel::driver {

RangeAllocator::RangeAllocator(uint64_t bytes, uint64_t granule)
    : granule_(granule), free_bytes_(bytes) {
  if (bytes > 0) {
    free_.emplace(0, bytes);
  }
}

std::optional<uint64_t> RangeAllocator::allocate(uint64_t bytes) {
  if (bytes == 0 || bytes > free_bytes_) {
    return std::nullopt;
  }
  const uint64_t size = (bytes + granule_ - 1) / granule_ * granule_;
  const auto found =
      std::find_if(free_.begin(), free_.end(), [&](const auto& r) { return r.second >= size; });
  if (found == free_.end()) {
    return std::nullopt;
  }
  const auto [offset, available] = *found;
  used_.emplace(offset, size);
  free_.erase(found);
  if (available > size) {
    free_.emplace(offset + size, available - size);
  }
  free_bytes_ -= size;
  return offset;
}

uint64_t RangeAllocator::size_of(uint64_t offset) const {
  const auto found = used_.find(offset);
  return found == used_.end() ? 0 : found->second;
}

void RangeAllocator::release(uint64_t offset) {
  const auto used = used_.find(offset);
  uint64_t size = used->second;
  used_.erase(used);
  free_bytes_ += size;
  const auto after = free_.find(offset + size);
  if (after != free_.end()) {
    size += after->second;
    free_.erase(after);
  }
  const auto next = free_.lower_bound(offset);
  if (next != free_.begin() && std::prev(next)->first + std::prev(next)->second == offset) {
    std::prev(next)->second += size;
  } else {
    free_.emplace(offset, size);
  }
}

uint64_t RangeAllocator::largest_free() const {
  uint64_t largest = 0;
  for (const auto& [offset, size] : free_) {
    largest = std::max(largest, size);
  }
  return largest;
}

namespace {

Window reserve_window(uint64_t bytes) {
  void* base = os::reserve(bytes);
  return {reinterpret_cast<uintptr_t>(base), base == nullptr ? 0 : bytes};
}

void release_window(const Window& window) {
  if (window.bytes != 0) {
    os::unreserve(reinterpret_cast<void*>(window.base), window.bytes);
  }
}

} // namespace

AddressMap::AddressMap(int devices, uint64_t memory, uint64_t window_bytes)
    : devices_(devices),
      memory_(memory),
      slot_(window_bytes / std::max(devices, 1) / kSegmentBytes * kSegmentBytes),
      device_(reserve_window(window_bytes)),
      host_(reserve_window(window_bytes)),
      pinned_(reserve_window(std::min(kPinnedBytes, window_bytes))) {}

AddressMap::~AddressMap() {
  release_window(device_);
  release_window(host_);
  release_window(pinned_);
}

bool AddressMap::valid() const {
  return device_.bytes != 0 && host_.bytes != 0 && pinned_.bytes != 0;
}

} // namespace accel::driver
