// Who has happened before whom. Streams are timelines of tickets; a clock holds, per stream, the
// newest ticket that is known to be complete. No torch, no chip: numbers only.
//
// The host has one clock, not one per thread: what any thread has seen complete is complete for
// whatever is enqueued later, by whomever. How host threads order themselves (locks, queues, joins)
// cannot be seen; a clock per thread would accuse them all.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace accel::sanitizer {

using StreamIndex = uint32_t; // counts the streams that were seen

class Clock {
 public:
  uint64_t of(StreamIndex stream) const {
    return stream < tickets_.size() ? tickets_[stream] : 0;
  }
  bool covers(StreamIndex stream, uint64_t ticket) const {
    return of(stream) >= ticket;
  }
  // True if it changed.
  bool raise(StreamIndex stream, uint64_t ticket);
  bool join(const Clock& other);

 private:
  std::vector<uint64_t> tickets_;
};

// The clocks of all streams and of the host.
class Order {
 public:
  // A launch on `stream` got that ticket.
  void enqueue(StreamIndex stream, uint64_t ticket);
  // What comes next on `stream` comes after `ticket` of `source`.
  void wait(StreamIndex stream, StreamIndex source, uint64_t ticket);
  // The host knows that `ticket` is complete; all that is enqueued from now on comes after it.
  void complete(StreamIndex stream, uint64_t ticket);

  // What a launch on `stream` would come after.
  const Clock& next(StreamIndex stream);
  // What `ticket` of `stream` came after, itself included.
  Clock at(StreamIndex stream, uint64_t ticket) const;
  const Clock& host() const {
    return host_;
  }
  // How many clocks of the past are kept.
  size_t remembered() const;

 private:
  struct Past {
    uint64_t from; // the first ticket that the clock holds for
    Clock clock;
  };
  struct Timeline {
    Clock now; // its own newest ticket included
    std::vector<Past> past; // ascending: the clock as it changed
    uint64_t host_version = 0; // of the host's clock that was joined last
  };

  Timeline& timeline(StreamIndex stream);
  void changed(StreamIndex stream, Timeline& timeline);
  void forget(StreamIndex stream, Timeline& timeline) const;

  std::vector<Timeline> timelines_;
  Clock host_;
  uint64_t host_version_ = 0;
};

} // namespace accel::sanitizer
