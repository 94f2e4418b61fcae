// Devices: count, the current device of a thread, lazy initialisation, and the one constant between
// a device address and the host's alias of it.
#pragma once

#include <c10/core/Device.h>

#include "../driver/accel.h"

namespace accel {

constexpr c10::DeviceType kDeviceType = c10::DeviceType::PrivateUse1;

// Initialises the chip once (accelInit, fault handler, wait hooks). Throws in a forked child, in
// torch.cuda's words.
ACCEL_API void lazy_init();
bool is_initialized();
// True in a forked child of an initialised process: nothing may touch the chip, deleters do
// nothing.
inline bool in_bad_fork() {
  return accelInBadFork() != 0;
}

// Never throw; 0 where ACCEL_DEVICES=0 or has an unusable value (lazy_init then says which).
ACCEL_API c10::DeviceIndex device_count() noexcept;
ACCEL_API c10::DeviceIndex current_device() noexcept;

// Sets the current device of this thread; throws for an index out of range, naming the devices
// there are.
void set_device(c10::DeviceIndex index);
// As set_device, returns the previous index. A negative index changes nothing.
c10::DeviceIndex exchange_device(c10::DeviceIndex index);
// As exchange_device, never throws or initialises.
c10::DeviceIndex unchecked_exchange_device(c10::DeviceIndex index) noexcept;
// Resolves -1 to the current device and throws for an index out of range.
c10::DeviceIndex checked_index(c10::DeviceIndex index);

// D: host address = device address + D. Set by lazy_init, constant afterwards.
ACCEL_API extern intptr_t g_address_offset;

inline void* host_address(const void* device_address) {
  return device_address == nullptr
      ? nullptr
      : reinterpret_cast<void*>(reinterpret_cast<intptr_t>(device_address) + g_address_offset);
}
inline void* device_address(const void* host_address) {
  return host_address == nullptr
      ? nullptr
      : reinterpret_cast<void*>(reinterpret_cast<intptr_t>(host_address) - g_address_offset);
}
// True if `host` lies in an arena, that is, aliases device memory.
bool is_arena_address(const void* host) noexcept;

} // namespace accel
