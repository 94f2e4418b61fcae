// Which launches touched which bytes, as far as a later access may have to be ordered after them.
// No torch, no chip: numbers only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "clock.h"

namespace accel::sanitizer {

struct Origin; // who asked for an access: see origin.h

// Bytes that an access touches: `run` bytes every `pitch` bytes from `first`, up to `last`; all of
// them where the pitch is 0.
struct Bytes {
  uintptr_t first = 0;
  uintptr_t last = 0; // one past the end
  uint64_t run = 0;
  uint64_t pitch = 0;

  bool overlaps(const Bytes& other) const;
  bool contains(const Bytes& other) const;
};

struct Access {
  Bytes bytes;
  bool write = false;
  StreamIndex stream = 0;
  uint64_t ticket = 0;
  bool captured = false; // by a graph that was launched: the origin is the capture's
  const char* name = ""; // interned
  uint64_t storage = 0;
  uint64_t tenancy = 0; // of the memory, when it was touched
  std::shared_ptr<const Origin> origin;
};

// Memory that is, or was, one block.
struct Region {
  uintptr_t end = 0;
  uint64_t tenancy = 0; // counts owners of all memory; 0: it was there before
  StreamIndex owner = kNoStream; // whose pool it belongs to
  std::vector<Access> accesses; // in the order of their launches

  static constexpr StreamIndex kNoStream = UINT32_MAX;
};

class Shadow {
 public:
  // An access that `access`, after `clock`, races with; null if there is none. The newest.
  const Access* find_race(const Access& access, const Clock& clock) const;
  // Remembers the access, and forgets those that it stands for from now on.
  void record(const Access& access, const Clock& clock);

  // The range is a block with a new owner; what `host` does not cover stays with its bytes.
  void allocate(uintptr_t first, uintptr_t last, StreamIndex owner, const Clock& host);
  // Nothing that `stream` did there up to `ticket` is unfinished.
  void complete(uintptr_t first, uintptr_t last, StreamIndex stream, uint64_t ticket);
  // Nothing at all is unfinished there.
  void release(uintptr_t first, uintptr_t last);

  // The region that holds the address, and where it begins; null if nothing is known of it.
  const Region* region(uintptr_t address, uintptr_t* begin) const;
  size_t remembered() const;

  // Accesses kept per region; the oldest are forgotten beyond. Then a race may go unnoticed, but
  // none is invented.
  static constexpr size_t kMost = 128;

 private:
  using Regions = std::map<uintptr_t, Region>;

  Regions::iterator first_in(uintptr_t first);
  void cut(uintptr_t at);

  Regions regions_; // disjoint
  uint64_t tenancies_ = 0;
};

} // namespace accel::sanitizer
