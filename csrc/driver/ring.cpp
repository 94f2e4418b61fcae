#include "ring.h"

#include "os_linux.h"

namespace accel::driver {

bool Ring::open() {
  if (bytes_ == nullptr) {
    bytes_ = static_cast<std::byte*>(os::reserve_lazily_backed(kBytes));
  }
  return bytes_ != nullptr;
}

void Ring::close() {
  if (bytes_ != nullptr) {
    os::unreserve(bytes_, kBytes);
    bytes_ = nullptr;
  }
}

Record* Ring::reserve(size_t bytes) {
  const uint64_t need = (bytes + 15) / 16 * 16;
  const uint64_t rest = kBytes - head_ % kBytes;
  const uint64_t skip = rest < need ? rest : 0;
  if (kBytes - (head_ - tail_.load(std::memory_order_acquire)) < skip + need) {
    return nullptr;
  }
  if (skip != 0) {
    Record* filler = at(head_);
    filler->bytes = static_cast<uint32_t>(skip);
    filler->filler = 1;
  }
  Record* record = at(head_ + skip);
  record->bytes = static_cast<uint32_t>(need);
  record->filler = 0;
  reserved_ = head_ + skip + need;
  return record;
}

void Ring::publish() {
  head_ = reserved_;
  published_.store(head_);
}

Record* Ring::front() {
  while (!empty()) {
    Record* record = at(tail_.load(std::memory_order_relaxed));
    if (record->filler == 0) {
      return record;
    }
    pop(record);
  }
  return nullptr;
}

void Ring::pop(const Record* record) {
  tail_.store(tail_.load(std::memory_order_relaxed) + record->bytes, std::memory_order_release);
}

} // namespace accel::driver
