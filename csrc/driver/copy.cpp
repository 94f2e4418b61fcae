// Copies and fills, in stream order.
#include <cstring>

#include "launch.h"
#include "process.h"
#include "stream.h"

namespace accel::driver {

namespace {

// One side of a copy.
struct Side {
  Located place;
  void* host = nullptr; // where the worker finds it

  bool pageable() const {
    return place.kind == accelMemoryHost;
  }
  bool on_device() const {
    return place.device >= 0;
  }
};

// Classifies [address, address + bytes); a range that leaves its device's memory is an error.
accelError_t find_side(const char* function, const void* address, size_t bytes, Side* side) {
  const uintptr_t first = reinterpret_cast<uintptr_t>(address);
  side->place = locate(first);
  const accelMemoryKind kind = side->place.kind;
  side->host = const_cast<void*>(address);
  if (kind == accelMemoryHost || kind == accelMemoryPinned) {
    return accelSuccess;
  }
  const uint64_t end = side->place.device < 0 ? 0 : side->place.end;
  if (side->place.offset >= end || bytes > end - side->place.offset) {
    return fail(
        accelErrorInvalidValue,
        "accel: %s: %zu bytes at %p are not all in the memory of one device",
        function,
        bytes,
        address);
  }
  if (kind == accelMemoryDevice) {
    side->host = reinterpret_cast<void*>(first + g_chip->map.offset());
  }
  return accelSuccess;
}

// The copy's cost and accesses, for those who watch launches.
struct CopyInfo {
  CopyInfo(
      const Side& dst,
      const void* dst_address,
      const Side* src,
      const void* src_address,
      size_t bytes)
      : info(make_info("memset", accelEngineCopy)) {
    const int64_t amount = static_cast<int64_t>(bytes);
    info.cores = 0;
    std::fill(std::begin(info.bytes), std::end(info.bytes), 0);
    std::fill(std::begin(info.flops), std::end(info.flops), 0);
    info.bytes[dst.on_device() ? accelLevelHbm : accelLevelHost] += amount;
    add(dst_address, bytes, accelAccessWrite);
    if (src != nullptr) {
      info.name = dst.on_device() ? (src->on_device() ? "memcpy_d2d" : "memcpy_h2d")
                                  : (src->on_device() ? "memcpy_d2h" : "memcpy_h2h");
      info.bytes[src->on_device() ? accelLevelHbm : accelLevelHost] += amount;
      if (dst.on_device() && src->on_device() && dst.place.device != src->place.device) {
        info.name = "memcpy_p2p";
        info.bytes[accelLevelLink] = amount;
      }
      add(src_address, bytes, accelAccessRead);
    }
    info.accesses = accesses;
  }
  CopyInfo(const CopyInfo&) = delete;
  CopyInfo& operator=(const CopyInfo&) = delete;

  void add(const void* address, size_t bytes, uint32_t mode) {
    accesses[info.num_accesses++] = {0, address, bytes, mode, 0, 0};
  }

  accelLaunchInfo info;
  accelAccess accesses[2];
};

// The bytes of a pageable source follow the struct.
struct alignas(16) Copy {
  void* dst;
  const void* src; // null: the captured bytes
  size_t bytes;

  static accelError_t invoke(const void* payload) {
    const Copy& copy = *static_cast<const Copy*>(payload);
    std::memmove(copy.dst, copy.src == nullptr ? &copy + 1 : copy.src, copy.bytes);
    return accelSuccess;
  }
};

struct Fill {
  void* dst;
  int value;
  size_t bytes;

  accelError_t run() const {
    std::memset(dst, value, bytes);
    return accelSuccess;
  }
};

accelError_t enqueue_copy(
    accelStream_t stream,
    const accelLaunchInfo& info,
    const Copy& copy,
    const void* captured,
    uint64_t* ticket) {
  accelLaunch launch{};
  launch.size = sizeof(launch);
  launch.info = &info;
  launch.payload_bytes = sizeof(Copy) + (captured == nullptr ? 0 : copy.bytes);
  launch.invoke = Copy::invoke;
  void* payload = nullptr;
  if (const accelError_t code = begin_launch(stream, launch, &payload)) {
    return code;
  }
  Copy* record = new (payload) Copy(copy);
  if (captured != nullptr) {
    std::memcpy(record + 1, captured, copy.bytes);
  }
  return commit_launch(stream, ticket);
}

} // namespace

} // namespace accel::driver

using namespace accel::driver;

extern "C" accelError_t accelMemcpyAsync(
    void* dst,
    const void* src,
    size_t bytes,
    accelStream_t stream,
    const char* caller) {
  return entry([&] {
    if (stream == nullptr || (bytes != 0 && (dst == nullptr || src == nullptr))) {
      return invalid("accelMemcpyAsync", "an argument is null");
    }
    if (bytes == 0) {
      return accelSuccess;
    }
    Side to;
    Side from;
    if (const accelError_t code = find_side("accelMemcpyAsync", dst, bytes, &to)) {
      return code;
    }
    if (const accelError_t code = find_side("accelMemcpyAsync", src, bytes, &from)) {
      return code;
    }
    if (to.pageable()) {
      if (const accelError_t code = forbid(stream, caller_or_unknown(caller))) {
        return code;
      }
    }
    const CopyInfo info(to, dst, &from, src, bytes);
    const Copy copy{to.host, from.pageable() ? nullptr : from.host, bytes};
    const uint32_t since = stream->device.resets.load();
    uint64_t ticket = 0;
    if (const accelError_t code =
            enqueue_copy(stream, info.info, copy, from.pageable() ? from.host : nullptr, &ticket)) {
      return code;
    }
    return to.pageable() ? wait_ticket(stream, ticket, caller_or_unknown(caller), since)
                         : wait_if_blocking(stream, ticket);
  });
}

extern "C" accelError_t accelMemsetAsync(void* dst, int value, size_t bytes, accelStream_t stream) {
  return entry([&] {
    if (stream == nullptr || (bytes != 0 && dst == nullptr)) {
      return invalid("accelMemsetAsync", "an argument is null");
    }
    if (bytes == 0) {
      return accelSuccess;
    }
    Side to;
    if (const accelError_t code = find_side("accelMemsetAsync", dst, bytes, &to)) {
      return code;
    }
    if (to.pageable()) {
      return fail(
          accelErrorInvalidValue,
          "accel: accelMemsetAsync: %p is neither device nor pinned memory",
          dst);
    }
    const CopyInfo info(to, dst, nullptr, nullptr, bytes);
    uint64_t ticket = 0;
    if (const accelError_t code =
            enqueue(stream, info.info, Fill{to.host, value, bytes}, &ticket)) {
      return code;
    }
    return wait_if_blocking(stream, ticket);
  });
}
