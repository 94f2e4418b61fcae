#include "graph_rng.h"

#include <deque>
#include <unordered_map>
#include <utility>

#include "stream.h"

namespace accel {

namespace {

// Captured kernels refer to cells, also those of another graph (a captured backward draws again
// what its captured forward drew): cells are used again, but never freed.
struct Cells {
  std::mutex mutex;
  std::deque<RngCell> all;
  std::vector<RngCell*> unused;
};

Cells& cells() {
  static auto* const cells = new Cells(); // leaked: see above
  return *cells;
}

RngCell* take_cell() {
  auto& pool = cells();
  std::lock_guard<std::mutex> lock(pool.mutex);
  if (pool.unused.empty()) {
    return &pool.all.emplace_back();
  }
  auto* const cell = pool.unused.back();
  pool.unused.pop_back();
  return cell;
}

struct Captures {
  std::mutex mutex;
  std::unordered_map<uint64_t, std::shared_ptr<GraphRng>> by_id;
};

Captures& captures() {
  static auto* const captures = new Captures(); // leaked: used at exit
  return *captures;
}

} // namespace

std::shared_ptr<GraphRng> GraphRng::of_current_stream(c10::DeviceIndex index) {
  if (C10_LIKELY(g_captures.load(std::memory_order_acquire) == 0)) {
    return nullptr;
  }
  auto& all = captures();
  const auto id = capture_id(current_stream(index));
  std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.by_id.find(id);
  return found == all.by_id.end() ? nullptr : found->second;
}

void GraphRng::set(uint64_t capture_id, std::shared_ptr<GraphRng> rng) {
  auto& all = captures();
  std::lock_guard<std::mutex> lock(all.mutex);
  if (rng != nullptr) {
    all.by_id[capture_id] = std::move(rng);
  } else {
    all.by_id.erase(capture_id);
  }
  g_captures.store(all.by_id.size(), std::memory_order_release);
}

GraphRng::~GraphRng() {
  auto& pool = cells();
  std::lock_guard<std::mutex> lock(pool.mutex);
  for (const auto& entry : entries_) {
    pool.unused.push_back(entry.cell);
  }
}

GraphRng::Entry& GraphRng::find(const std::shared_ptr<GeneratorState>& state) {
  for (auto& entry : entries_) {
    if (entry.state == state) {
      return entry;
    }
  }
  return entries_.emplace_back(Entry{state, take_cell(), 0});
}

void GraphRng::register_state(const std::shared_ptr<GeneratorState>& state) {
  std::lock_guard<std::mutex> lock(mutex_);
  find(state);
}

CallKey GraphRng::reserve(const std::shared_ptr<GeneratorState>& state) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto& entry = find(state);
  const CallKey key(entry.cell, entry.offset);
  entry.offset += kOffsetPerCall;
  return key;
}

uint64_t GraphRng::offset(const std::shared_ptr<GeneratorState>& state) {
  std::lock_guard<std::mutex> lock(mutex_);
  return find(state).offset;
}

void GraphRng::set_offset(const std::shared_ptr<GeneratorState>& state, uint64_t offset) {
  std::lock_guard<std::mutex> lock(mutex_);
  find(state).offset = offset;
}

std::vector<accelGraphWord> GraphRng::draw() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<accelGraphWord> words;
  for (const auto& [state, cell, used] : entries_) {
    if (used == 0) {
      continue;
    }
    std::lock_guard<std::mutex> also(state->mutex);
    words.push_back({&cell->seed, state->seed});
    words.push_back({&cell->offset, state->offset});
    state->offset += used;
  }
  return words;
}

} // namespace accel
