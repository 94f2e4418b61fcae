#include "detector.h"

#include <string_view>

#include "../driver/accel_graph.h"
#include "../runtime/host_allocator.h"

namespace accel::sanitizer {

namespace {

constexpr size_t kCaptures = 8; // under way at a time, with their memory
constexpr size_t kNodes = 1 << 16; // of graphs, whose origin is kept

// The allocator's poison is no access of the program's.
bool is_poison(const accelLaunchInfo& info) {
  return std::string_view(info.name) == "memset";
}

bool is_pinned(const Access& access) {
  return is_pinned_ptr(reinterpret_cast<const void*>(access.bytes.first));
}

} // namespace

Clock Detector::Capture::after(const uint32_t* dependencies, uint32_t count) const {
  Clock clock;
  for (uint32_t i = 0; i < count; ++i) {
    if (dependencies[i] < nodes.size()) {
      clock.join(nodes[dependencies[i]]);
    }
  }
  return clock;
}

StreamIndex Detector::index_of(accelStream_t stream) {
  const auto [entry, inserted] =
      indices_.try_emplace(stream, static_cast<StreamIndex>(streams_.size()));
  if (inserted) {
    streams_.push_back(stream);
  }
  return entry->second;
}

// Names need to outlive their launch only, accesses are remembered for longer.
const char* Detector::intern(const char* name) {
  return names_.emplace(name).first->c_str();
}

Detector::Capture& Detector::capture(uint64_t id) {
  auto& found = captures_[id];
  while (captures_.size() > kCaptures && captures_.begin()->first != id) {
    captures_.erase(captures_.begin());
  }
  return found;
}

Access Detector::make_access(const accelAccess& access, StreamIndex stream, uint64_t ticket) {
  const auto first = reinterpret_cast<uintptr_t>(access.address);
  Access made;
  made.bytes = {first, first + access.bytes, access.run, access.pitch};
  made.write = (access.mode & accelAccessWrite) != 0;
  made.stream = stream;
  made.ticket = ticket;
  made.storage = access.storage;
  return made;
}

template <class Visit>
void Detector::for_each_access(const accelTraceEvent& event, uint64_t ticket, Visit&& visit) {
  if (is_poison(*event.info)) {
    return;
  }
  const auto stream = index_of(event.stream);
  const char* name = nullptr;
  for (uint32_t i = 0; i < event.info->num_accesses; ++i) {
    const auto& given = event.info->accesses[i];
    if (given.bytes == 0 || given.address == nullptr) {
      continue;
    }
    name = name == nullptr ? intern(event.info->name) : name;
    auto access = make_access(given, stream, ticket);
    access.name = name;
    visit(access);
  }
}

Race Detector::make_race(const Access& first, const Access& second, const Shadow& memory) const {
  Race race;
  race.first = {first, streams_.at(first.stream), false};
  race.second = {second, nullptr, false};
  uintptr_t begin = 0;
  if (const auto* const region = memory.region(second.bytes.first, &begin);
      region != nullptr && region->tenancy != 0) {
    race.block = begin;
    race.block_bytes = region->end - begin;
    if (region->tenancy != first.tenancy && region->owner != first.stream) {
      race.remedy = Remedy::kRecordStream;
    }
  }
  return race;
}

std::optional<Race> Detector::check(
    const accelTraceEvent& event,
    std::shared_ptr<const Origin> origin) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto stream = index_of(event.stream);
  const bool capturing = event.capture != 0;
  auto& memory = capturing ? capture(event.capture).memory : memory_;
  const auto clock = capturing
      ? capture(event.capture).after(event.dependencies, event.num_dependencies)
      : order_.next(stream);
  const auto node = nodes_.find(event.info->correlation);
  std::optional<Race> race;
  for_each_access(event, UINT64_MAX, [&](Access& access) {
    if (is_pinned(access)) {
      watches_host_.store(true, std::memory_order_relaxed);
    }
    const auto* const first = race ? nullptr : memory.find_race(access, clock);
    if (first == nullptr) {
      return;
    }
    race = make_race(*first, access, memory);
    race->second.stream = event.stream;
    race->second.captured = event.info->correlation != 0 && node != nodes_.end();
    race->second.access.origin = race->second.captured ? node->second : std::move(origin);
    race->first.captured = capturing ? false : race->first.access.captured;
  });
  return race;
}

std::optional<Race> Detector::check_host(const Access& access) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto* const first = memory_.find_race(access, order_.host());
  if (first == nullptr) {
    return std::nullopt;
  }
  auto race = make_race(*first, access, memory_);
  race.first.captured = first->captured;
  race.remedy = Remedy::kSynchronize;
  return race;
}

void Detector::record(const accelTraceEvent& event, const std::shared_ptr<const Origin>& origin) {
  const auto stream = index_of(event.stream);
  const bool node = event.phase == accelTraceNode;
  if (!node) {
    order_.enqueue(stream, event.ticket);
  }
  const auto found = node ? nodes_.find(event.info->correlation) : nodes_.end();
  for_each_access(event, event.ticket, [&](Access& access) {
    access.origin = !node ? origin : found != nodes_.end() ? found->second : nullptr;
    access.captured = node;
    memory_.record(access, order_.next(stream));
  });
}

void Detector::record_node(
    const accelTraceEvent& event,
    const std::shared_ptr<const Origin>& origin) {
  auto& into = capture(event.capture);
  auto clock = into.after(event.dependencies, event.num_dependencies);
  const uint64_t number = uint64_t{event.index} + 1;
  clock.raise(index_of(event.stream), number);
  for_each_access(event, number, [&](Access& access) {
    access.origin = origin;
    into.memory.record(access, clock);
  });
  into.nodes.resize(std::max<size_t>(into.nodes.size(), number));
  into.nodes[event.index] = std::move(clock);
  nodes_[event.info->correlation] = origin;
  node_order_.push_back(event.info->correlation);
  if (node_order_.size() > kNodes) {
    nodes_.erase(node_order_.front());
    node_order_.pop_front();
  }
}

void Detector::change_memory(const accelTraceEvent& event) {
  const auto first = reinterpret_cast<uintptr_t>(event.address);
  const auto last = first + event.bytes;
  if (event.phase == accelTraceComplete) {
    memory_.complete(first, last, index_of(event.stream), event.ticket);
  } else if (event.phase == accelTraceRelease || event.stream == nullptr) {
    // Pinned memory is given out again only when no stream uses it.
    memory_.release(first, last);
  } else {
    const auto owner = index_of(event.stream);
    memory_.allocate(first, last, owner, order_.host());
    uint64_t capturing = 0;
    if (accelStreamGetCaptureInfo(event.stream, nullptr, &capturing) == accelSuccess &&
        capturing != 0) {
      capture(capturing).memory.allocate(first, last, owner, Clock());
    }
  }
}

void Detector::apply(const accelTraceEvent& event, const std::shared_ptr<const Origin>& origin) {
  std::lock_guard<std::mutex> lock(mutex_);
  switch (event.phase) {
    case accelTraceEnqueue:
    case accelTraceNode:
      record(event, origin);
      break;
    case accelTraceCapture:
      record_node(event, origin);
      break;
    case accelTraceWait: {
      const auto stream = index_of(event.stream);
      order_.wait(stream, index_of(event.source), event.source_ticket);
      break;
    }
    case accelTraceComplete:
      if (event.address == nullptr) {
        order_.complete(index_of(event.stream), event.ticket);
        break;
      }
      [[fallthrough]];
    case accelTraceAllocate:
    case accelTraceRelease:
      change_memory(event);
      break;
    case accelTraceBegin:
    case accelTraceEnd:
    case accelTraceLaunch:
      break;
  }
}

size_t Detector::remembered_accesses() {
  std::lock_guard<std::mutex> lock(mutex_);
  return memory_.remembered();
}

size_t Detector::remembered_clocks() {
  std::lock_guard<std::mutex> lock(mutex_);
  return order_.remembered();
}

} // namespace accel::sanitizer
