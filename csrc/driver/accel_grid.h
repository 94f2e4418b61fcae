// accel_grid.h: compiled kernels that run as a grid of programs on the chip's cores; the fourth
// part of the chip's C interface. Conventions as in accel.h; modelled on cuModule* and
// cuLaunchKernel.
//
// A kernel is a function in this process that runs one program. The programs of a grid are claimed
// in ascending order (x fastest) from one counter, by as many cores as the launch has, and run to
// their end: a program may wait for an earlier one, and for a later one in a cooperative launch
// only. Other orders are for finding kernels that depend on it.
#pragma once

#include "accel.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- What a kernel sees

enum {
  accelGridFaultAssert = 1, // an assertion of the kernel's own
  accelGridFaultBounds = 2, // an access outside of an argument's memory
  accelGridFaultOther = 3,
  accelGridFaultStuck = 4, // a loop waits, and no program ends: the driver's own finding
};

enum { accelGridAscending = 0, accelGridReverse = 1, accelGridShuffled = 2 };

// The site of a fault whose text says all, program and place too.
#define ACCEL_GRID_NO_SITE UINT32_MAX

// Where a program says what is wrong, before it returns a value that is not 0.
typedef struct accelGridFault {
  size_t size;
  uint32_t kind; // accelGridFault*
  uint32_t program[3]; // set by the driver
  uint32_t site; // index into accelModuleInfo::sites
  int64_t values[4]; // what the message is about; the driver does not read them
  char text[1024]; // what is wrong, without a full stop; empty: the driver says it by kind
} accelGridFault;

// Handed to each program, in turn, by the core that runs it.
typedef struct accelGridContext {
  size_t size; // of this struct
  uintptr_t offset; // D: add it to a device address to reach its bytes from a core
  uint32_t program[3]; // the program to run
  uint32_t grid[3];
  uint8_t* sram; // this core's scratch memory, 64-byte aligned; what earlier programs left is there
  size_t sram_size;
  volatile uint32_t* abort; // not 0: the device is aborted or another program failed, so a loop
                            // that waits for something is to return
  void* fault; // an accelGridFault
  // For a loop that waits for another program and has paused in vain: gives the host's core to
  // other threads. `turns` goes up from call to call and begins anew with each loop. Not 0: nothing
  // has moved for ACCEL_WATCHDOG_S, `fault` is written, and the program is to return.
  int32_t (*wait)(const struct accelGridContext* context, uint32_t site, uint64_t turns);
} accelGridContext;

// 0, or not 0 when it has written `fault`. `args` are the launch's bytes, 16-byte aligned. Runs
// with default floating-point control: no flushing of denormals.
typedef int32_t (*accelGridFunction)(const accelGridContext* context, const void* args);

// ---- Modules

// A kernel that can be launched.
typedef struct accelModule* accelModule_t;

typedef struct accelModuleInfo {
  uint32_t size;
  const char* name; // of the kernel; copied
  accelGridFunction function;
  size_t args_bytes; // of a launch's arguments
  size_t sram; // bytes of scratch memory that a program uses
  const char* const* sites; // "kernel.py:12" for each place that can fail; copied
  uint32_t num_sites;
  // Optional. Called once, on any thread, when the function will not be called again; it must call
  // nothing of the chip and must not wait.
  void (*release)(void* user);
  void* user;
} accelModuleInfo;

// accelErrorOutOfMemory if a core has less scratch memory than `sram`; `release` is then not
// called.
ACCEL_API accelError_t accelModuleLoad(const accelModuleInfo* info, accelModule_t* module);
// Launches that are queued or captured keep the module until they are gone. Null is ignored.
ACCEL_API void accelModuleUnload(accelModule_t module);

// ---- Launches

typedef struct accelGridLaunch {
  uint32_t size;
  uint32_t grid[3]; // programs along x, y, z; a 0 launches nothing
  uint32_t cores; // at most so many run programs at the same time; 0: all that the device has
  uint32_t
      cooperative; // 1: all programs run at the same time, so that they may wait for one another
  uint32_t order; // in which programs are claimed: accelGridAscending ...
  const void* args; // copied
  size_t args_bytes;
  // Optional: what is known of this launch, as for accelLaunchBegin. A null name is the module's;
  // the driver fills in the cores where they are unknown.
  const accelLaunchInfo* info;
} accelGridLaunch;

// Enqueues the grid as one launch. `ticket` may be null; a grid without programs has the stream's
// newest. Fails for a cooperative grid with more programs than the device has cores.
ACCEL_API accelError_t accelLaunchGrid(
    accelStream_t stream,
    accelModule_t module,
    const accelGridLaunch* launch,
    uint64_t* ticket);

#ifdef __cplusplus
} // extern "C"
#endif
