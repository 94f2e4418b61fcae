// Device segments, blocks, pinned host memory, and what is known of an address.
#include "os_linux.h"
#include "process.h"
#include "trace.h"

namespace accel::driver {

namespace {

double mebibytes(uint64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

// The device whose segment begins at `ptr`, or null with the message set.
Device* find_segment(const void* ptr, uint64_t* offset) {
  const Located place = locate(reinterpret_cast<uintptr_t>(ptr));
  if (place.kind != accelMemoryDevice || place.device < 0 || place.imported) {
    fail(accelErrorInvalidValue, "accel: accelFree: %p is not device memory", ptr);
    return nullptr;
  }
  *offset = place.offset - g_chip->map.slot_offset(place.device);
  return g_chip->devices[place.device].get();
}

} // namespace

Located locate(uintptr_t address) noexcept {
  Located place{g_chip->map.find(address)};
  if (place.device < 0) {
    return place;
  }
  if (!place.imported) {
    place.end = g_chip->map.slot_offset(place.device) + g_chip->devices[place.device]->bytes;
    return place;
  }
  const Block block = g_chip->blocks.find(place.offset);
  if (block.bytes == 0) {
    place.device = -1; // nothing is imported there
  }
  place.end = block.offset + block.bytes;
  return place;
}

} // namespace accel::driver

using namespace accel::driver;

extern "C" accelError_t accelMalloc(int device, size_t bytes, void** ptr) {
  return entry([&] {
    if (ptr == nullptr || bytes == 0) {
      return invalid("accelMalloc", "the result pointer is null or the size is 0");
    }
    Device* found = find_device(device);
    if (found == nullptr) {
      return accelErrorInvalidDevice;
    }
    std::lock_guard<std::mutex> lock(found->memory_mutex);
    const std::optional<uint64_t> offset = found->memory.allocate(bytes);
    if (!offset) {
      return fail(
          accelErrorOutOfMemory,
          "accel: accel:%d is out of memory: %.2f MiB asked for, %.2f of %.2f MiB free, the "
          "largest free piece has %.2f MiB; ACCEL_MEMORY sets the size of a device",
          device,
          mebibytes(bytes),
          mebibytes(found->memory.free_bytes()),
          mebibytes(found->bytes),
          mebibytes(found->memory.largest_free()));
    }
    *ptr = reinterpret_cast<void*>(found->device_base + *offset);
    return accelSuccess;
  });
}

extern "C" accelError_t accelFree(void* ptr) {
  return entry([&] {
    if (ptr == nullptr) {
      return accelSuccess;
    }
    uint64_t offset = 0;
    Device* device = find_segment(ptr, &offset);
    if (device == nullptr) {
      return accelErrorInvalidValue;
    }
    std::unique_lock<std::mutex> lock(device->memory_mutex);
    const uint64_t bytes = device->memory.size_of(offset);
    if (bytes == 0) {
      return fail(
          accelErrorInvalidValue, "accel: accelFree: no segment of accelMalloc begins at %p", ptr);
    }
    lock.unlock();
    trace_range(accelTraceRelease, ptr, bytes);
    // Before the range is free: a new owner must not lose its data.
    os::drop_pages(reinterpret_cast<void*>(device->host_base + offset), bytes);
    g_chip->blocks.clear(g_chip->map.slot_offset(device->index) + offset, bytes);
    lock.lock();
    device->memory.release(offset);
    return accelSuccess;
  });
}

extern "C" accelError_t accelMemGetInfo(int device, size_t* free, size_t* total) {
  return entry([&] {
    Device* found = find_device(device);
    if (found == nullptr) {
      return accelErrorInvalidDevice;
    }
    std::lock_guard<std::mutex> lock(found->memory_mutex);
    if (free != nullptr) {
      *free = found->memory.free_bytes();
    }
    if (total != nullptr) {
      *total = found->bytes;
    }
    return accelSuccess;
  });
}

extern "C" accelError_t accelGetAddressMap(accelAddressMap* map) {
  return entry([&] {
    if (map == nullptr || map->size < sizeof(accelAddressMap)) {
      return invalid("accelGetAddressMap", "the result is null or its size is too small");
    }
    const AddressMap& windows = g_chip->map;
    map->device_base = windows.device().base;
    map->host_base = windows.host().base;
    map->window_bytes = windows.device().bytes;
    map->offset = windows.offset();
    map->pinned_base = windows.pinned().base;
    map->pinned_bytes = windows.pinned().bytes;
    return accelSuccess;
  });
}

extern "C" accelError_t accelGetArena(int device, void** host, size_t* bytes) {
  return entry([&] {
    if (host == nullptr || bytes == nullptr) {
      return invalid("accelGetArena", "a result pointer is null");
    }
    const Device* found = find_device(device);
    if (found == nullptr) {
      return accelErrorInvalidDevice;
    }
    *host = reinterpret_cast<void*>(found->host_base);
    *bytes = found->bytes;
    return accelSuccess;
  });
}

extern "C" accelError_t accelPointerGetAttributes(
    const void* ptr,
    accelPointerAttributes* attributes) {
  return entry([&] {
    if (attributes == nullptr || attributes->size < sizeof(accelPointerAttributes)) {
      return invalid("accelPointerGetAttributes", "the result is null or its size is too small");
    }
    const Located place = locate(reinterpret_cast<uintptr_t>(ptr));
    attributes->kind = place.kind;
    attributes->device = place.device;
    attributes->block = nullptr;
    attributes->block_bytes = 0;
    attributes->block_live = 0;
    attributes->owner = 0;
    const Block block = place.device < 0 ? Block{} : g_chip->blocks.find(place.offset);
    if (block.bytes != 0) {
      const Window& window =
          place.kind == accelMemoryDevice ? g_chip->map.device() : g_chip->map.host();
      attributes->block = reinterpret_cast<const void*>(window.base + block.offset);
      attributes->block_bytes = block.bytes;
      attributes->block_live = block.live ? 1 : 0;
      attributes->owner = block.owner;
    }
    return accelSuccess;
  });
}

extern "C" accelError_t accelBlockSet(const void* ptr, size_t bytes, int owner, int live) {
  return entry([&] {
    const Located place = locate(reinterpret_cast<uintptr_t>(ptr));
    if (place.kind != accelMemoryDevice || place.device < 0 || place.imported ||
        place.offset % kBlockGranule != 0) {
      return invalid("accelBlockSet", "not a 512-byte aligned address of device memory");
    }
    if (bytes == 0 || bytes > place.end - place.offset || owner > kMaxOwner || owner < -kMaxOwner) {
      return invalid("accelBlockSet", "the size or the owner is out of range");
    }
    g_chip->blocks.set(place.offset, bytes, owner, live != 0);
    return accelSuccess;
  });
}

extern "C" accelError_t accelHostAlloc(size_t bytes, void** ptr) {
  return entry([&] {
    if (ptr == nullptr || bytes == 0) {
      return invalid("accelHostAlloc", "the result pointer is null or the size is 0");
    }
    std::unique_lock<std::mutex> lock(g_chip->pinned_mutex);
    const std::optional<uint64_t> offset = g_chip->pinned.allocate(bytes);
    const uint64_t size = offset ? g_chip->pinned.size_of(*offset) : 0;
    lock.unlock();
    if (offset) {
      void* place = reinterpret_cast<void*>(g_chip->map.pinned().base + *offset);
      if (os::map_private(place, size)) {
        *ptr = place;
        return accelSuccess;
      }
      lock.lock();
      g_chip->pinned.release(*offset);
    }
    return fail(
        accelErrorOutOfMemory,
        "accel: no pinned host memory left: %.2f MiB asked for",
        mebibytes(bytes));
  });
}

extern "C" accelError_t accelHostFree(void* ptr) {
  return entry([&] {
    if (ptr == nullptr) {
      return accelSuccess;
    }
    const uintptr_t address = reinterpret_cast<uintptr_t>(ptr);
    const Window& window = g_chip->map.pinned();
    std::unique_lock<std::mutex> lock(g_chip->pinned_mutex);
    const uint64_t offset = address - window.base;
    const uint64_t bytes = window.contains(address) ? g_chip->pinned.size_of(offset) : 0;
    lock.unlock();
    if (bytes == 0) {
      return fail(
          accelErrorInvalidValue,
          "accel: accelHostFree: %p was not allocated by accelHostAlloc",
          ptr);
    }
    trace_range(accelTraceRelease, ptr, bytes);
    if (!os::unmap_private(ptr, bytes)) {
      return fail(accelErrorOutOfMemory, "accel: the system could not unmap pinned memory");
    }
    lock.lock();
    g_chip->pinned.release(offset);
    return accelSuccess;
  });
}
