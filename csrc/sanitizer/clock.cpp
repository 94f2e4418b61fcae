#include "clock.h"

namespace accel::sanitizer {

bool Clock::raise(StreamIndex stream, uint64_t ticket) {
  if (covers(stream, ticket)) {
    return false;
  }
  if (stream >= tickets_.size()) {
    tickets_.resize(stream + 1);
  }
  tickets_[stream] = ticket;
  return true;
}

bool Clock::join(const Clock& other) {
  bool changed = false;
  tickets_.resize(std::max(tickets_.size(), other.tickets_.size()));
  for (size_t i = 0; i < other.tickets_.size(); ++i) {
    if (other.tickets_[i] > tickets_[i]) {
      tickets_[i] = other.tickets_[i];
      changed = true;
    }
  }
  return changed;
}

Order::Timeline& Order::timeline(StreamIndex stream) {
  if (stream >= timelines_.size()) {
    timelines_.resize(stream + 1);
  }
  return timelines_[stream];
}

// The clock holds from the next ticket on.
void Order::changed(StreamIndex stream, Timeline& timeline) {
  const uint64_t from = timeline.now.of(stream) + 1;
  if (!timeline.past.empty() && timeline.past.back().from == from) {
    timeline.past.back().clock = timeline.now;
  } else {
    forget(stream, timeline);
    timeline.past.push_back({from, timeline.now});
  }
}

// Tickets that the host knows to be complete add nothing to any clock: all later ones cover them.
void Order::forget(StreamIndex stream, Timeline& timeline) const {
  auto& past = timeline.past;
  const auto needed = std::upper_bound(
      past.begin(), past.end(), host_.of(stream), [](uint64_t ticket, const Past& entry) {
        return ticket < entry.from;
      });
  if (needed - past.begin() > 1) {
    past.erase(past.begin(), needed - 1); // the clock of the newest complete ticket stays
  }
}

void Order::enqueue(StreamIndex stream, uint64_t ticket) {
  next(stream);
  timelines_[stream].now.raise(stream, ticket);
}

void Order::wait(StreamIndex stream, StreamIndex source, uint64_t ticket) {
  timeline(std::max(stream, source));
  const auto clock = at(source, ticket);
  auto& waiting = timelines_[stream];
  if (waiting.now.join(clock)) {
    changed(stream, waiting);
  }
}

void Order::complete(StreamIndex stream, uint64_t ticket) {
  timeline(stream);
  if (!host_.covers(stream, ticket)) {
    host_.join(at(stream, ticket));
    ++host_version_;
  }
}

const Clock& Order::next(StreamIndex stream) {
  auto& mine = timeline(stream);
  if (mine.host_version != host_version_) {
    mine.host_version = host_version_;
    if (mine.now.join(host_)) {
      changed(stream, mine);
    }
  }
  return mine.now;
}

Clock Order::at(StreamIndex stream, uint64_t ticket) const {
  Clock clock;
  if (stream < timelines_.size()) {
    const auto& past = timelines_[stream].past;
    const auto after =
        std::upper_bound(past.begin(), past.end(), ticket, [](uint64_t wanted, const Past& entry) {
          return wanted < entry.from;
        });
    if (after != past.begin()) {
      clock = (after - 1)->clock;
    }
  }
  clock.raise(stream, ticket);
  return clock;
}

size_t Order::remembered() const {
  size_t total = 0;
  for (const auto& timeline : timelines_) {
    total += timeline.past.size();
  }
  return total;
}

} // namespace accel::sanitizer
