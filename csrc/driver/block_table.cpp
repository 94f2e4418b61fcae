#include "block_table.h"

#include "os_linux.h"

namespace accel::driver {

namespace {

// Bits 0..31 the size in granules, 32 live, 33..63 the owner.
uint64_t pack(uint64_t granules, int32_t owner, bool live) {
  return static_cast<uint64_t>(static_cast<int64_t>(owner)) << 33 | uint64_t{live} << 32 | granules;
}

constexpr uint64_t words_for(uint64_t bits) {
  return (bits + 63) / 64;
}

} // namespace

BlockTable::BlockTable(uint64_t window_bytes) {
  const uint64_t granules = window_bytes / kBlockGranule;
  uint64_t total = granules;
  for (uint64_t level = 0, bits = granules; level < kLevels; ++level) {
    bits = words_for(bits);
    total += bits;
  }
  reserved_bytes_ = total * sizeof(Word);
  // Zeroed memory is a table of zero atomics.
  words_ = static_cast<Word*>(os::reserve_lazily_backed(reserved_bytes_));
  if (words_ != nullptr) {
    Word* next = words_ + granules;
    uint64_t bits = granules;
    for (Word*& level : bits_) {
      level = next;
      bits = words_for(bits);
      next += bits;
    }
  }
}

BlockTable::~BlockTable() {
  if (words_ != nullptr) {
    os::unreserve(words_, reserved_bytes_);
  }
}

void BlockTable::set(uint64_t offset, uint64_t bytes, int32_t owner, bool live) noexcept {
  const uint64_t head = offset / kBlockGranule;
  const uint64_t granules = (bytes + kBlockGranule - 1) / kBlockGranule;
  words_[head].store(pack(granules, owner, live), std::memory_order_release);
  clear_bits(0, head + 1, head + granules);
  // From the top, so that a set bit always has its path from the root. Only the lowest bit is the
  // caller's own: finding it set says that the path is there.
  for (int level = kLevels - 1; level >= 0 && !is_head(head); --level) {
    const uint64_t bit = head >> (6 * level);
    const uint64_t mask = uint64_t{1} << (bit % 64);
    Word& word = bits_[level][bit / 64];
    if ((word.load(std::memory_order_acquire) & mask) == 0) {
      word.fetch_or(mask, std::memory_order_release);
    }
  }
}

bool BlockTable::is_head(uint64_t granule) const noexcept {
  return (bits_[0][granule / 64].load(std::memory_order_acquire) >> (granule % 64) & 1) != 0;
}

void BlockTable::clear(uint64_t offset, uint64_t bytes) noexcept {
  const uint64_t head = offset / kBlockGranule;
  clear_bits(0, head, head + (bytes + kBlockGranule - 1) / kBlockGranule);
}

void BlockTable::clear_in_word(int level, uint64_t word, uint64_t mask) noexcept {
  Word& bits = bits_[level][word];
  const uint64_t found = bits.load(std::memory_order_acquire) & mask;
  if (found == 0) {
    return;
  }
  for (uint64_t rest = level == 0 ? 0 : found; rest != 0; rest &= rest - 1) {
    clear_in_word(level - 1, word * 64 + __builtin_ctzll(rest), ~uint64_t{0});
  }
  bits.fetch_and(~found, std::memory_order_release);
}

// Clears the bits [first, last) of a level and everything below them. A bit of the level above is
// cleared only with its whole word, which then belongs to the caller alone: nobody can be setting
// a bit in that word. Words at the two ends, which neighbours may share, keep their bit above; it
// costs a reader one load.
void BlockTable::clear_bits(int level, uint64_t first, uint64_t last) noexcept {
  if (first >= last) {
    return;
  }
  uint64_t word = first / 64;
  const uint64_t end = last / 64;
  const uint64_t low = ~uint64_t{0} << (first % 64);
  const uint64_t high = (uint64_t{1} << (last % 64)) - 1;
  if (word == end) {
    clear_in_word(level, word, low & high);
    return;
  }
  if (first % 64 != 0) {
    clear_in_word(level, word++, low);
  }
  if (last % 64 != 0) {
    clear_in_word(level, end, high);
  }
  if (level + 1 < kLevels) {
    clear_bits(level + 1, word, end);
  } else {
    for (; word < end; ++word) {
      clear_in_word(level, word, ~uint64_t{0});
    }
  }
}

// The last head under the bits of `mask` in one word of a level.
bool BlockTable::find_in_word(int level, uint64_t word, uint64_t mask, uint64_t* head)
    const noexcept {
  uint64_t found = mask == 0 ? 0 : bits_[level][word].load(std::memory_order_acquire) & mask;
  while (found != 0) {
    const uint64_t bit = 63 - __builtin_clzll(found);
    *head = word * 64 + bit;
    if (level == 0 || find_in_word(level - 1, *head, ~uint64_t{0}, head)) {
      return true;
    }
    found &= ~(uint64_t{1} << bit);
  }
  return false;
}

// The last head at or before `granule`: in its word, then in the words before it.
bool BlockTable::find_head(uint64_t granule, uint64_t* head) const noexcept {
  uint64_t end = granule + 1;
  for (int level = 0; level < kLevels; ++level) {
    if (find_in_word(level, end / 64, (uint64_t{1} << (end % 64)) - 1, head)) {
      return true;
    }
    end /= 64;
  }
  return false;
}

Block BlockTable::find(uint64_t offset) const noexcept {
  Block block;
  uint64_t head = 0;
  const uint64_t granule = offset / kBlockGranule;
  if (!find_head(granule, &head)) {
    return block;
  }
  const uint64_t word = words_[head].load(std::memory_order_acquire);
  const uint64_t granules = word & 0xffffffff;
  if (granule - head >= granules) {
    return block;
  }
  block.offset = head * kBlockGranule;
  block.bytes = granules * kBlockGranule;
  block.owner = static_cast<int32_t>(static_cast<int64_t>(word) >> 33);
  block.live = (word >> 32 & 1) != 0;
  return block;
}

} // namespace accel::driver
