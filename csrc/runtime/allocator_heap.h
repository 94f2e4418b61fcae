// One device's memory as a data structure: segments from the chip, cut into blocks, cached per
// stream. No waiting and no launches happen here; allocator.cpp does those around it, unlocked.
//
// As in torch.cuda: sizes are multiples of 512 B; blocks up to 1 MiB come from 2 MiB segments,
// larger ones from 20 MiB segments, those of 10 MiB and more from a segment of their own.
//
// Lock order: (Python's GIL) -> host allocator -> Heap::mutex -> the chip's own locks
// (accelMalloc, accelFree). A stream's producer lock is never taken under Heap::mutex.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <array>
#include <deque>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "allocator.h"
#include "allocator_history.h"
#include "stream.h"

namespace accel {

struct Block;
struct PrivatePool;

// Best fit: the smallest block that is large enough, then the lowest address.
struct BySize {
  using is_transparent = void;
  bool operator()(const Block* a, const Block* b) const;
  bool operator()(const Block* a, size_t size) const;
};
using FreeSet = std::set<Block*, BySize>;

// The free blocks of one stream and size class, apart for host code and for threads that use memory
// at once: merging takes the newer of two tickets, so a deep queue's frees would keep what a worker
// gave back, and every launch would need a segment of its own. Each side borrows from the other
// before the heap grows.
struct Pool {
  accelStream_t stream = nullptr;
  bool small = false;
  PrivatePool* owner = nullptr; // null: one of the general pools
  FreeSet free;
  // The blocks freed last, the newest at the end: not merged yet, since the next allocation of that
  // very size takes them back without a search. Neither allocated nor idle.
  std::array<Block*, 8> recent{};
  size_t num_recent = 0;
};

// host small, host large, now small, now large, of each stream
using Pools = std::unordered_map<accelStream_t, std::array<Pool, 4>>;

// Segments that serve only what is routed to them: a graph's, or torch.accel.MemPool's. While
// somebody holds a use count no segment goes back to the chip, since a graph keeps the addresses.
struct PrivatePool {
  explicit PrivatePool(c10::MempoolId_t id) : id(id) {}

  const c10::MempoolId_t id;
  int use_count = 1;
  size_t segments = 0;
  bool use_on_oom = false; // other allocations may take its free blocks before they fail
  bool no_split = false;
  Pools pools;
};

// One piece of memory of the chip.
struct Segment {
  void* ptr = nullptr;
  size_t size = 0;
  size_t requested = 0; // by the allocation that made it
  const Pool* pool = nullptr;
  Block* head = nullptr; // its first block
  Context context; // of the allocation that made it
};

struct Block {
  void* ptr = nullptr;
  size_t size = 0;
  size_t requested = 0;
  Pool* pool = nullptr;
  Segment* segment = nullptr;
  Block* prev = nullptr; // neighbours in the same segment
  Block* next = nullptr;
  bool idle = false; // in pool->free
  uint64_t ticket = 0; // of pool->stream at the free
  Ticket born; // the launch whose worker allocated it; null stream for a host allocation
  std::vector<accelStream_t> users; // other streams named by record_stream
  size_t pending_users = 0; // of those, the ones a deferred free still waits for
  Context context; // of its allocation
  FreeSet::node_type node; // kept while the block is out of the set, so that a free never allocates

  bool is_split() const {
    return prev != nullptr || next != nullptr;
  }
  // True if launch `record` itself took the block from its own stream's pool: no other launch has
  // seen it.
  bool taken_by(const Ticket& record) const {
    return record.stream != nullptr && record.stream == pool->stream &&
        record.stream == born.stream && record.value == born.value;
  }
};

struct Request {
  size_t size = 0; // rounded
  size_t requested = 0;
  accelStream_t stream = nullptr;
  PrivatePool* owner = nullptr; // valid until the heap is unlocked: see Heap::route
  bool now = false; // the worker's half of the ticket rule applies
  Ticket record; // the launch this worker runs; null stream on other threads
  Context context;
};

// Rounds to the size of a block, honouring roundup_power2_divisions of PYTORCH_ALLOC_CONF.
size_t round_size(size_t bytes);

// What is known of an address in a segment.
struct Owner {
  c10::DeviceIndex device = 0;
  size_t segment = 0;
  size_t segment_size = 0;
  size_t address = 0; // of the block
  c10::CachingDeviceAllocator::BlockInfo block; // with the last free's stack if it is idle
  accelStream_t stream = nullptr;
  c10::MempoolId_t pool;
};

// Live blocks of one size on one stream.
struct Tenants {
  size_t size = 0;
  accelStream_t stream = nullptr;
  size_t count = 0;
  Context context; // of one of them
};

// The caller of every member function but the constructor holds `mutex`.
class Heap {
 public:
  using Stats = c10::CachingDeviceAllocator::DeviceStats;

  Heap(c10::DeviceIndex index, bool poison) : history(index), index_(index), poison_(poison) {}

  std::mutex mutex;
  Stats stats;
  History history;
  size_t allowed = SIZE_MAX; // bytes that may be reserved: see set_memory_fraction
  double fraction = 1;

  // Sets the private pool that the request is for, null for the general ones. To be asked again
  // whenever the heap has been unlocked.
  void route(Request& request) const;
  // A cached block for the request, or null.
  Block* take(const Request& request);
  // A block of a new segment, or null when the device is full.
  Block* grow(const Request& request);
  // A free block of a private pool that lends its memory before a general allocation fails.
  Block* borrow(const Request& request);
  // The allocated block that starts at `ptr`, or null.
  Block* find(void* ptr) const;
  void add_user(Block* block, accelStream_t stream);
  // Ends the allocation; the block is idle at once or after settle() finds its users done.
  // `record` is the launch that the calling worker runs, `context` the stack of the free.
  void free(Block* block, Ticket record, const Context& context);
  // Makes the deferred frees idle whose users are done.
  void settle();
  // Returns idle whole segments with complete tickets to the chip, largest first, until at least
  // `bytes` are released: of the general pools and of the private ones that nobody uses, or of
  // private pool `only`. Returns the bytes released.
  size_t release(
      size_t bytes = SIZE_MAX,
      c10::MempoolId_t only = kGeneralPool,
      const Context& context = nullptr);

  // The private pool of that id, or null.
  PrivatePool* private_pool(c10::MempoolId_t id) const;
  // Makes the pool, or adds to its use count.
  PrivatePool& retain_pool(c10::MempoolId_t id);
  void release_pool(c10::MempoolId_t id);
  void begin_route(c10::MempoolId_t id, PoolFilter filter, bool capture);
  void end_route(c10::MempoolId_t id);

  enum What { Deferred, Segments, Blocks };
  // The incomplete tickets (one a stream) that hold back deferred frees, idle whole segments that
  // release() returns, or all idle blocks; of private pool `only` where that is not the general
  // one.
  std::vector<Ticket> outstanding(
      std::initializer_list<What> what,
      c10::MempoolId_t only = kGeneralPool);
  // Bytes in idle blocks.
  size_t idle_bytes();
  // The segments as they are now, by address, added to `list`.
  void append_segments(std::vector<SegmentInfo>& list, c10::MempoolId_t only);
  std::optional<Owner> owner(const void* address);
  // The live blocks, largest first in groups of one size and stream.
  std::vector<Tenants> tenants() const;
  // Bytes in live blocks of private pools.
  size_t allocated_in_private_pools() const;
  // As `stats`, with what was freed last counted as idle.
  Stats current_stats();
  // Resets the peaks, or the counts since the start.
  void reset_stats(bool peak);

 private:
  struct Route {
    c10::MempoolId_t id;
    PoolFilter filter;
    bool capture;
  };

  Pool& pool_of(const Request& request, bool now);
  Block* take_from(Pool& pool, const Request& request);
  void split(Block* block, size_t size);
  Block* hand_out(Block* block, const Request& request);
  void defer(Block* block);
  bool captured(const Block* block) const;
  void complete_free(Block* block, const Context& context);
  void keep_recent(Block* block);
  Block* take_recent(Pool& pool, size_t size, uint64_t newest);
  void merge_recent(Pool& pool);
  void merge_recent();
  void merge(Block* block);
  size_t absorb(Block* block, Block* neighbour);
  void insert(Block* block);
  void collect_garbage();
  size_t release_from(Pools& pools, size_t bytes, const Context& context);
  void forget_unused_pools();

  const c10::DeviceIndex index_;
  const bool poison_;
  Pools pools_;
  std::map<c10::MempoolId_t, std::unique_ptr<PrivatePool>> private_pools_;
  std::vector<Route> routes_; // the newest last
  std::map<const void*, Segment> segments_;
  ska::flat_hash_map<void*, Block*> allocated_;
  // Per using stream, in ticket order: the ticket to complete and the block it holds back.
  std::unordered_map<accelStream_t, std::deque<std::pair<uint64_t, Block*>>> deferred_;
  size_t num_deferred_ = 0;
  // Freed during a capture that used them on several streams: what the capture would wait for
  // exists at replay only.
  std::vector<Block*> until_capture_ends_;
};

// Where a block belongs. The general pools have no owner.
inline c10::MempoolId_t pool_id(const Pool& pool) {
  return pool.owner == nullptr ? kGeneralPool : pool.owner->id;
}

// The newest complete ticket; 0 after shutdown, which keeps every pending block where it is.
uint64_t completed(accelStream_t stream);
// Adds to a statistic, in total and for the pool's size class. Inline: ten times for each tensor.
C10_ALWAYS_INLINE void
count(c10::CachingAllocator::StatArray& stat, const Pool& pool, int64_t amount) {
  using c10::CachingAllocator::StatType;
  const auto type = pool.small ? StatType::SMALL_POOL : StatType::LARGE_POOL;
  auto& all = stat[static_cast<size_t>(StatType::AGGREGATE)];
  auto& one = stat[static_cast<size_t>(type)];
  if (amount >= 0) {
    all.increase(amount);
    one.increase(amount);
  } else {
    all.decrease(-amount);
    one.decrease(-amount);
  }
}
// A segment of `bytes` came (+1) or goes (-1).
void count_segment(Heap::Stats& stats, const Pool& pool, size_t bytes, int sign);
// Fills idle memory with bytes 0xFF (NaN in every floating dtype) through the host's alias.
void poison_now(void* ptr, size_t bytes);

// ---- Around the heaps (allocator.cpp)

Heap& heap_of(c10::DeviceIndex index);
// The launch this worker runs; null stream on any other thread.
Ticket this_record();
// True inside ExecuteNow.
bool executes_now();
// As allocate(bytes, stream), of a caller that knows this_record().
void* allocate(size_t bytes, c10::Stream stream, Ticket record);
// Waits, with nothing locked, for what Heap::outstanding names; raises a kernel's failure met
// there.
void wait_for(
    Heap& heap,
    std::initializer_list<Heap::What> what,
    const char* caller,
    c10::MempoolId_t only = kGeneralPool);
// Whom this worker acts for; null on any other thread.
const Requester* acting_for();
std::optional<Owner> owner_of(const void* address);
[[noreturn]] void throw_out_of_memory(
    Heap& heap,
    c10::DeviceIndex index,
    Request& request,
    const std::string& why = "");

} // namespace accel
