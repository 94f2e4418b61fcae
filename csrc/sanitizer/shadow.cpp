#include "shadow.h"

#include <algorithm>
#include <numeric>

namespace accel::sanitizer {

// Runs at pitches p and q lie within runs at gcd(p, q): those meet unless their places in a period
// are apart.
bool Bytes::overlaps(const Bytes& other) const {
  if (first >= other.last || other.first >= last) {
    return false;
  }
  if (pitch == 0 && other.pitch == 0) {
    return true;
  }
  if (pitch == 0) {
    return other.overlaps(*this);
  }
  if (other.pitch == 0) { // unless it lies between two runs
    const auto start = std::max(first, other.first);
    const uint64_t place = (start - first) % pitch;
    return place < run || place + (std::min(last, other.last) - start) > pitch;
  }
  const uint64_t period = std::gcd(pitch, other.pitch);
  if (run + other.run > period) {
    return true;
  }
  const uint64_t from_mine = (other.first % period + period - first % period) % period;
  return from_mine < run || from_mine + other.run > period;
}

bool Bytes::contains(const Bytes& other) const {
  if (other.first < first || other.last > last) {
    return false;
  }
  return pitch == 0 ||
      (pitch == other.pitch && run == other.run && (other.first - first) % pitch == 0);
}

// The first region that ends after `first`.
Shadow::Regions::iterator Shadow::first_in(uintptr_t first) {
  auto it = regions_.upper_bound(first);
  if (it != regions_.begin() && std::prev(it)->second.end > first) {
    --it;
  }
  return it;
}

const Access* Shadow::find_race(const Access& access, const Clock& clock) const {
  const Access* newest = nullptr;
  auto it = regions_.upper_bound(access.bytes.first);
  if (it != regions_.begin()) {
    --it;
  }
  for (; it != regions_.end() && it->first < access.bytes.last; ++it) {
    const auto& accesses = it->second.accesses;
    for (auto old = accesses.rbegin(); old != accesses.rend(); ++old) {
      if ((access.write || old->write) && !clock.covers(old->stream, old->ticket) &&
          old->bytes.overlaps(access.bytes)) {
        newest = newest == nullptr || old->write ? &*old : newest;
        break;
      }
    }
  }
  return newest;
}

void Shadow::record(const Access& access, const Clock& clock) {
  uintptr_t at = access.bytes.first;
  for (auto it = first_in(at); at < access.bytes.last; ++it) {
    if (it == regions_.end() || it->first > at) { // memory from before the sanitizer
      const auto end = it == regions_.end() ? access.bytes.last
                                            : std::min<uintptr_t>(access.bytes.last, it->first);
      it = regions_.emplace_hint(it, at, Region{end, 0, Region::kNoStream, {}});
    }
    at = it->second.end;
    auto& accesses = it->second.accesses;
    // Who comes after this access comes after those that this one comes after. A read says nothing
    // to later reads, so it does not stand for a write.
    std::erase_if(accesses, [&](const Access& old) {
      return (access.write || !old.write) && clock.covers(old.stream, old.ticket) &&
          access.bytes.contains(old.bytes);
    });
    if (accesses.size() >= kMost) {
      accesses.erase(accesses.begin());
    }
    accesses.push_back(access);
    accesses.back().tenancy = it->second.tenancy;
  }
}

// Makes a region that goes across `at` two.
void Shadow::cut(uintptr_t at) {
  const auto it = first_in(at);
  if (it == regions_.end() || it->first >= at) {
    return;
  }
  Region upper = it->second;
  it->second.end = at;
  std::erase_if(upper.accesses, [at](const Access& a) { return a.bytes.last <= at; });
  std::erase_if(it->second.accesses, [at](const Access& a) { return a.bytes.first >= at; });
  regions_.emplace(at, std::move(upper));
}

namespace {

// The new owner comes after all that the pool's stream did there: its newest write and its newest
// read, over the bytes of all, say that as well as each of them.
void merge(Region& block, uintptr_t first) {
  std::vector<Access> merged;
  for (const bool write : {false, true}) {
    const Access* newest = nullptr;
    Bytes hull{block.end, first, 0, 0};
    for (const auto& access : block.accesses) {
      if (access.stream == block.owner && access.write == write) {
        hull.first = std::max(first, std::min(hull.first, access.bytes.first));
        hull.last = std::min(block.end, std::max(hull.last, access.bytes.last));
        newest = newest == nullptr || access.ticket >= newest->ticket ? &access : newest;
      }
    }
    if (newest != nullptr) {
      merged.push_back(*newest);
      merged.back().bytes = hull;
    }
  }
  std::erase_if(block.accesses, [&](const Access& access) { return access.stream == block.owner; });
  block.accesses.insert(block.accesses.begin(), merged.begin(), merged.end());
}

} // namespace

void Shadow::allocate(uintptr_t first, uintptr_t last, StreamIndex owner, const Clock& host) {
  cut(first);
  cut(last);
  Region block{last, ++tenancies_, owner, {}};
  auto it = first_in(first);
  while (it != regions_.end() && it->first < last) {
    for (auto& access : it->second.accesses) {
      if (!host.covers(access.stream, access.ticket)) {
        block.accesses.push_back(std::move(access));
      }
    }
    it = regions_.erase(it);
  }
  merge(block, first);
  if (block.accesses.size() > kMost) {
    block.accesses.erase(block.accesses.begin(), block.accesses.end() - kMost);
  }
  regions_.emplace_hint(it, first, std::move(block));
}

void Shadow::complete(uintptr_t first, uintptr_t last, StreamIndex stream, uint64_t ticket) {
  for (auto it = first_in(first); it != regions_.end() && it->first < last; ++it) {
    std::erase_if(it->second.accesses, [&](const Access& access) {
      return access.stream == stream && access.ticket <= ticket && access.bytes.first < last &&
          access.bytes.last > first;
    });
  }
}

void Shadow::release(uintptr_t first, uintptr_t last) {
  cut(first);
  cut(last);
  for (auto it = first_in(first); it != regions_.end() && it->first < last;) {
    it = regions_.erase(it);
  }
}

const Region* Shadow::region(uintptr_t address, uintptr_t* begin) const {
  auto it = regions_.upper_bound(address);
  if (it == regions_.begin() || std::prev(it)->second.end <= address) {
    return nullptr;
  }
  *begin = std::prev(it)->first;
  return &std::prev(it)->second;
}

size_t Shadow::remembered() const {
  size_t total = 0;
  for (const auto& [first, region] : regions_) {
    total += region.accesses.size();
  }
  return total;
}

} // namespace accel::sanitizer
