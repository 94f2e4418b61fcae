// The windows of address space, and the allocation of ranges in them.
//
// Two windows of equal length are reserved: the device window, which the host cannot touch, and
// the host window, which holds the arenas. Device i owns the slot [i * slot, (i + 1) * slot) of
// both, so one constant separates a device address from the host's alias of it. A slot is the
// device's own memory and, behind it, room for memory imported from other processes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "accel.h"
#include "config.h"

namespace accel::driver {

// What is asked of the system first; where it refuses (a limit, valgrind) less is taken.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kWindowBytes = uint64_t{64} << 30; // the sanitizers' shadows take the rest
#else
constexpr uint64_t kWindowBytes = uint64_t{1} << 40;
#endif
constexpr uint64_t kLeastWindowBytes = uint64_t{16} << 30;
constexpr uint64_t kPinnedBytes = uint64_t{64} << 30; // at most a window's length

// First-fit allocation of offsets in [0, bytes). Not thread-safe.
class RangeAllocator {
 public:
  RangeAllocator(uint64_t bytes, uint64_t granule);

  std::optional<uint64_t> allocate(uint64_t bytes);
  // The size of the range allocated at `offset`, 0 if there is none.
  uint64_t size_of(uint64_t offset) const;
  void release(uint64_t offset);
  uint64_t free_bytes() const {
    return free_bytes_;
  }
  uint64_t largest_free() const;

 private:
  const uint64_t granule_;
  uint64_t free_bytes_;
  std::map<uint64_t, uint64_t> free_; // offset -> size
  std::map<uint64_t, uint64_t> used_;
};

struct Window {
  uintptr_t base = 0;
  uint64_t bytes = 0;

  bool contains(uintptr_t address) const {
    return address - base < bytes;
  }
};

// Which device's memory an address is.
struct Place {
  accelMemoryKind kind = accelMemoryHost;
  int device = -1; // also -1 in the windows' unused parts
  uint64_t offset = 0; // from the start of its window
  bool imported = false; // in the part of a slot for imports, used or not
};

class AddressMap {
 public:
  AddressMap(int devices, uint64_t memory, uint64_t window_bytes);
  ~AddressMap();
  AddressMap(const AddressMap&) = delete;
  AddressMap& operator=(const AddressMap&) = delete;

  // False if the address space could not be reserved.
  bool valid() const;

  const Window& device() const {
    return device_;
  }
  const Window& host() const {
    return host_;
  }
  const Window& pinned() const {
    return pinned_;
  }
  // D: host address = device address + offset().
  intptr_t offset() const {
    return static_cast<intptr_t>(host_.base - device_.base);
  }
  uint64_t slot_offset(int device) const {
    return static_cast<uint64_t>(device) * slot_;
  }
  // The bytes of a slot behind the device's own.
  uint64_t import_bytes() const {
    return slot_ - memory_;
  }
  Place find(uintptr_t address) const {
    Place place;
    if (device_.contains(address)) {
      place.kind = accelMemoryDevice;
      place.offset = address - device_.base;
    } else if (host_.contains(address)) {
      place.kind = accelMemoryArena;
      place.offset = address - host_.base;
    } else {
      place.kind = pinned_.contains(address) ? accelMemoryPinned : accelMemoryHost;
      return place;
    }
    const uint64_t slot = place.offset / slot_;
    if (slot < static_cast<uint64_t>(devices_)) {
      place.device = static_cast<int>(slot);
      place.imported = place.offset - slot * slot_ >= memory_;
    }
    return place;
  }

 private:
  const int devices_;
  const uint64_t memory_;
  const uint64_t slot_;
  Window device_;
  Window host_;
  Window pinned_;
};

} // namespace accel::driver
