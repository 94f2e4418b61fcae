// accel.h: the C interface of the chip. Everything above it (csrc/runtime, csrc/aten, the Python
// package) reaches the chip through this header alone; the simulation behind it is replaceable.
// Modelled on the CUDA driver API (accel* <-> cu* in docs/architecture.md).
//
// Conventions: every function returns accelError_t unless it cannot fail; on failure
// accelGetLastErrorMessage() tells, for this thread, the value and the remedy. Every struct begins
// with its own size, set by the caller, so that it can grow. Sizes are bytes, times nanoseconds
// unless named otherwise. All functions are thread-safe. After fork() the child's calls return
// accelErrorForked and touch nothing. No function throws.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ACCEL_API __attribute__((visibility("default")))

typedef enum accelError_t {
  accelSuccess = 0,
  accelErrorInvalidValue = 1, // a null, unknown or out-of-range argument
  accelErrorInvalidDevice = 2, // no device of that index
  accelErrorOutOfMemory = 3, // device or pinned memory exhausted
  accelErrorNotReady = 4, // a query found unfinished work; not a failure
  accelErrorLaunchFailure = 5, // a kernel failed; raised once, at a later synchronisation
  accelErrorForked = 6, // called in a forked child of a process that had initialised the chip
  accelErrorAborted = 7, // the device was aborted, or the process is shutting down
  accelErrorConfig = 8, // an environment variable has an unusable value
  accelErrorNotSupported = 9, // this operating system or this call order cannot do it
  accelErrorCapture = 10, // not while a stream captures (accel_graph.h), or the capture is spoilt
  accelErrorRefused = 11, // a subscriber refused the launch (accel_trace.h)
} accelError_t;

// An in-order queue of launches; lives until the process ends.
typedef struct accelStream* accelStream_t;
// A point in a stream.
typedef struct accelEvent* accelEvent_t;

// ---- Process

// Reads the ACCEL_* variables, reserves the windows of address space, opens the devices.
// Idempotent; starts no thread.
ACCEL_API accelError_t accelInit(void);
// 1 once accelInit has succeeded in this process.
ACCEL_API int accelIsInitialized(void);
// 1 in a forked child of a process that had initialised the chip.
ACCEL_API int accelInBadFork(void);
// Aborts all devices, waits up to `deadline_ms` for the workers to end, and leaks the rest.
// Registered with atexit by accelInit. Later calls return accelErrorAborted.
ACCEL_API void accelShutdown(int deadline_ms);
// The text of the last failing call of this thread; valid until the next one. Never null.
ACCEL_API const char* accelGetLastErrorMessage(void);
// Installs the SIGSEGV handler that explains host accesses to device memory and chains to the
// handler before it; call again after somebody else installed one.
ACCEL_API accelError_t accelFaultHandlerInstall(void);

// ---- Devices

typedef struct accelDeviceProp {
  uint32_t size;
  char name[64];
  uint64_t total_memory; // bytes of HBM
  int32_t cores; // independent cores of the chip
  int32_t lanes; // 32-bit lanes per core
  uint64_t sram_per_core; // bytes of scratch memory per core
  uint64_t hbm_bytes_per_second;
  uint64_t link_bytes_per_second; // per direction, to each peer
  int32_t clock_khz;
  int32_t host_visible; // 1: kernels on the host's CPU may compute on device bytes at
                        // accelAddressMap's offset
} accelDeviceProp;

// The number of devices (ACCEL_DEVICES, ACCEL_VISIBLE_DEVICES); does not initialise.
ACCEL_API accelError_t accelGetDeviceCount(int* count);
ACCEL_API accelError_t accelDeviceGetProperties(int device, accelDeviceProp* prop);
// Waits until every stream of the device is empty; returns the first kernel failure not yet raised.
ACCEL_API accelError_t accelDeviceSynchronize(int device, const char* caller);
// Sets the device's abort word: waits return accelErrorAborted, queued launches are dropped, the
// running ones end by themselves.
ACCEL_API accelError_t accelDeviceAbort(int device);
// Aborts, waits up to `deadline_ms` (negative: for ever) for the running launches and makes the
// device usable again, its memory kept; accelErrorNotReady if one still runs: it stays aborted.
ACCEL_API accelError_t accelDeviceReset(int device, int deadline_ms);

// ---- Memory

typedef struct accelAddressMap {
  uint32_t size;
  uintptr_t device_base; // first byte of the device window (PROT_NONE: the host cannot touch it)
  uintptr_t host_base; // first byte of the host window (the arenas)
  uintptr_t window_bytes; // length of each window
  intptr_t offset; // D: host address = device address + offset, for every device
  uintptr_t pinned_base; // first byte of the window of pinned host memory
  uintptr_t pinned_bytes;
} accelAddressMap;

typedef enum accelMemoryKind {
  accelMemoryHost = 0, // ordinary host memory, unknown to the chip
  accelMemoryDevice = 1, // an address of the device window
  accelMemoryArena = 2, // the host's alias of a device address
  accelMemoryPinned = 3, // host memory of accelHostAlloc
} accelMemoryKind;

typedef struct accelPointerAttributes {
  uint32_t size;
  accelMemoryKind kind;
  int32_t device; // -1 for host memory
  const void* block; // first byte of the block of accelBlockSet that holds the address, or null
  uint64_t block_bytes;
  int32_t block_live; // 1 between accelBlockSet(live) and accelBlockSet(free)
  int32_t owner; // the tag given to accelBlockSet (the runtime gives the stream's id)
} accelPointerAttributes;

// A segment of device memory, aligned to 2 MiB; accelErrorOutOfMemory when the device is full.
ACCEL_API accelError_t accelMalloc(int device, size_t bytes, void** ptr);
// Returns a segment and its pages. The caller has made sure that no queued launch uses it.
ACCEL_API accelError_t accelFree(void* ptr);
ACCEL_API accelError_t accelMemGetInfo(int device, size_t* free, size_t* total);
ACCEL_API accelError_t accelGetAddressMap(accelAddressMap* map);
// The host's view of the whole memory of a device: what NumPy wraps.
ACCEL_API accelError_t accelGetArena(int device, void** host, size_t* bytes);
// Classifies any address. Lock-free and async-signal-safe.
ACCEL_API accelError_t
accelPointerGetAttributes(const void* ptr, accelPointerAttributes* attributes);
// Notes in the block ownership table (512-byte granules) that [ptr, ptr + bytes) is one block.
// Lock-free; the caller owns the range.
ACCEL_API accelError_t accelBlockSet(const void* ptr, size_t bytes, int owner, int live);
// Pinned host memory, aligned to 4 KiB, which copies may use without the caller waiting.
ACCEL_API accelError_t accelHostAlloc(size_t bytes, void** ptr);
ACCEL_API accelError_t accelHostFree(void* ptr);

// ---- Streams and events
// Each launch on a stream has a ticket: 1, 2, 3 ... in enqueue order. A ticket is complete when its
// launch and all before it have ended.

ACCEL_API accelError_t accelStreamCreate(int device, int priority, accelStream_t* stream);
// Drains the stream and frees its ring; the handle stays valid for queries.
ACCEL_API accelError_t accelStreamDestroy(accelStream_t stream);
ACCEL_API int accelStreamGetDevice(accelStream_t stream);
ACCEL_API int accelStreamGetPriority(accelStream_t stream);
// The ticket of the newest launch enqueued, and of the newest complete one. Either pointer may be
// null. Lock-free.
ACCEL_API accelError_t
accelStreamGetTickets(accelStream_t stream, uint64_t* enqueued, uint64_t* completed);
// The stream whose worker is the calling thread and the ticket it runs, or null on every other
// thread.
ACCEL_API accelStream_t accelStreamOfThisThread(uint64_t* ticket);
// accelSuccess if all enqueued work is complete, else accelErrorNotReady.
ACCEL_API accelError_t accelStreamQuery(accelStream_t stream);
// Waits until everything enqueued before the call is complete; returns (and clears) a kernel
// failure among it.
ACCEL_API accelError_t accelStreamSynchronize(accelStream_t stream, const char* caller);
// As accelStreamSynchronize, for one ticket.
ACCEL_API accelError_t
accelStreamWaitTicket(accelStream_t stream, uint64_t ticket, const char* caller);
// Holds `stream`, not the host, until the event's recording at the time of this call is complete;
// its failures travel along. No-op if never recorded.
ACCEL_API accelError_t accelStreamWaitEvent(accelStream_t stream, accelEvent_t event);
// Holds `stream` until the 32-bit word at `address` (device or pinned memory) is >= value, as
// cuStreamWaitValue32.
ACCEL_API accelError_t accelStreamWaitValue32(accelStream_t stream, void* address, uint32_t value);
// Writes `value` there, in stream order, with release semantics.
ACCEL_API accelError_t accelStreamWriteValue32(accelStream_t stream, void* address, uint32_t value);
// Holds `stream` for that long (torch.accel._sleep).
ACCEL_API accelError_t accelStreamSleep(accelStream_t stream, uint64_t nanoseconds);

enum {
  accelEventTiming = 1
}; // flag of accelEventCreate: keep the time at which the stream passes the event
ACCEL_API accelError_t accelEventCreate(uint32_t flags, accelEvent_t* event);
// Waits and recordings already made keep their meaning. Null is ignored.
ACCEL_API void accelEventDestroy(accelEvent_t event);
ACCEL_API accelError_t accelEventRecord(accelEvent_t event, accelStream_t stream);
// accelSuccess if complete or never recorded, else accelErrorNotReady.
ACCEL_API accelError_t accelEventQuery(accelEvent_t event);
ACCEL_API accelError_t accelEventSynchronize(accelEvent_t event, const char* caller);
// Milliseconds of the stream's time between two timing events, both complete and of one device.
ACCEL_API accelError_t
accelEventElapsedTime(double* milliseconds, accelEvent_t start, accelEvent_t end);

// ---- Launches

typedef enum accelEngine {
  accelEngineCompute = 0,
  accelEngineCopy = 1,
  accelEngineHost = 2
} accelEngine;
enum { accelAccessRead = 1, accelAccessWrite = 2 };
enum {
  accelLevelHbm = 0,
  accelLevelSram = 1,
  accelLevelLink = 2,
  accelLevelHost = 3,
  accelLevels = 4
};
enum {
  accelFlopsF64 = 0,
  accelFlopsF32 = 1,
  accelFlopsF16 = 2,
  accelFlopsF8 = 3,
  accelFlopsInt = 4,
  accelFlopsClasses = 5
};

typedef struct accelAccess {
  uint64_t storage; // the framework's id of the storage, 0 if unknown
  const void* address; // first byte touched
  uint64_t bytes; // length of the range touched
  uint32_t mode; // accelAccessRead | accelAccessWrite
  // Where only parts of the range are touched: `run` bytes every `pitch` bytes. 0: all of it.
  uint64_t run;
  uint64_t pitch;
} accelAccess;

// What tracing, sanitizer, profiler and clock know of a launch. Unknown is -1 (bytes, flops,
// cores), never 0.
typedef struct accelLaunchInfo {
  uint32_t size;
  const char* name; // must outlive the launch: a literal or an interned string
  uint64_t correlation; // set by accelLaunchBegin: unique in the process, taken at enqueue
  accelEngine engine;
  int32_t cores;
  int64_t bytes[accelLevels];
  int64_t flops[accelFlopsClasses];
  const accelAccess* accesses; // copied into the record
  uint32_t num_accesses;
} accelLaunchInfo;

typedef struct accelLaunch {
  uint32_t size;
  const accelLaunchInfo* info; // copied into the record
  size_t payload_bytes;
  // Runs on the stream's worker, and may run again with the same payload (graphs). On failure it
  // calls accelSetKernelError and returns the code.
  accelError_t (*invoke)(const void* payload);
  // Optional. Called once, on any thread, after the last invoke or when the launch is dropped.
  void (*destroy)(void* payload);
} accelLaunch;

// Reserves a record in the stream's ring (16-byte aligned payload) and locks the stream for this
// thread until Commit or Cancel; the caller only writes the payload in between. Waits, before it
// locks, while the ring is full; on a worker it returns accelErrorNotSupported instead.
ACCEL_API accelError_t
accelLaunchBegin(accelStream_t stream, const accelLaunch* launch, void** payload);
// Publishes the record and unlocks. With ACCEL_LAUNCH_BLOCKING=1 waits for it and returns its
// failure.
ACCEL_API accelError_t accelLaunchCommit(accelStream_t stream, uint64_t* ticket);
// Drops the reserved record (destroy is not called) and unlocks.
ACCEL_API void accelLaunchCancel(accelStream_t stream);
// For invoke: the text that the synchronising thread will see. Copied.
ACCEL_API void accelSetKernelError(const char* message);
// Reads or sets ACCEL_LAUNCH_BLOCKING at run time.
ACCEL_API int accelGetLaunchBlocking(void);
ACCEL_API void accelSetLaunchBlocking(int on);

// Copies between any two kinds of memory in stream order. A pageable source is captured by value,
// so it may change right after the call; a pageable destination makes the call wait. Pinned memory
// is used in place: the caller keeps it alive until the ticket is complete.
ACCEL_API accelError_t accelMemcpyAsync(
    void* dst,
    const void* src,
    size_t bytes,
    accelStream_t stream,
    const char* caller);
ACCEL_API accelError_t accelMemsetAsync(void* dst, int value, size_t bytes, accelStream_t stream);

// ---- Waits (tracing is in accel_trace.h)

// Called around the parking part of every host wait, so that the layer above can let go of a lock
// of its own (Python's GIL).
typedef struct accelWaitHooks {
  uint32_t size;
  void* (*before)(void); // the result is handed to after
  void (*after)(void* token);
} accelWaitHooks;
ACCEL_API accelError_t accelSetWaitHooks(const accelWaitHooks* hooks);
// Calls `visit` once per caller name with the number of host waits that found unfinished work.
ACCEL_API void accelForEachWait(
    void (*visit)(const char* caller, uint64_t count, void* user),
    void* user);

#ifdef __cplusplus
} // extern "C"
#endif
