// Which block holds a device address: one word per 512-byte granule, and a tree of bitmaps that
// finds the head before an address in a few loads. Lock-free and readable in a signal handler.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "address_map.h"

namespace accel::driver {

constexpr uint64_t kBlockGranule = 512;
constexpr int32_t kMaxOwner = (1 << 30) - 1;

struct Block {
  uint64_t offset = 0; // from the start of the device window
  uint64_t bytes = 0; // 0: no block
  int32_t owner = 0;
  bool live = false;
};

class BlockTable {
 public:
  explicit BlockTable(uint64_t window_bytes);
  ~BlockTable();
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;

  bool valid() const {
    return words_ != nullptr;
  }
  // Makes [offset, offset + bytes) one block; blocks that began inside are forgotten. The caller
  // owns that range, so that nobody else marks heads in it.
  void set(uint64_t offset, uint64_t bytes, int32_t owner, bool live) noexcept;
  // Forgets the blocks that begin in [offset, offset + bytes).
  void clear(uint64_t offset, uint64_t bytes) noexcept;
  Block find(uint64_t offset) const noexcept;

 private:
  using Word = std::atomic<uint64_t>;
  static constexpr int kLevels = 6; // 64^6 > granules of the largest window

  void clear_in_word(int level, uint64_t word, uint64_t mask) noexcept;
  void clear_bits(int level, uint64_t first, uint64_t last) noexcept;
  bool is_head(uint64_t granule) const noexcept;
  bool find_in_word(int level, uint64_t word, uint64_t mask, uint64_t* head) const noexcept;
  bool find_head(uint64_t granule, uint64_t* head) const noexcept;

  Word* words_ = nullptr; // a head's size, owner and state
  std::array<Word*, kLevels> bits_{}; // level 0: the heads; level n + 1: words of level n in use
  uint64_t reserved_bytes_ = 0;
};

} // namespace accel::driver
