// accel_ipc.h: device memory shared between processes. Same conventions as accel.h; what is not
// here is the framework's: who sends what to whom.
//
// The exporter keeps one end of a socket, the importer gets the other. Both processes see in it
// whether the other one still holds the memory, and the system closes it for one that is killed.
#pragma once

#include "accel.h"

#ifdef __cplusplus
extern "C" {
#endif

// Memory of this process that others may hold.
typedef struct accelIpcExport* accelIpcExport_t;

typedef enum accelIpcState {
  accelIpcPending = 0, // on its way: somebody has the descriptor, nobody has imported it
  accelIpcHeld = 1, // imported
  accelIpcReleased = 2, // nobody has it, or can get it any more
} accelIpcState;

// Exports [ptr, ptr + bytes) of device memory of this process to one importer: `file` is a
// descriptor, owned by the caller, that goes to it (SCM_RIGHTS or inheritance). The caller neither
// frees nor reuses the memory before the state is accelIpcReleased. What is enqueued on the streams
// of its device up to now is complete for the importer's stream. Memory that was itself imported
// gives accelErrorNotSupported.
ACCEL_API accelError_t
accelIpcExportCreate(const void* ptr, size_t bytes, accelIpcExport_t* exported, int* file);
ACCEL_API accelError_t accelIpcExportQuery(accelIpcExport_t exported, accelIpcState* state);
ACCEL_API void accelIpcExportDestroy(accelIpcExport_t exported);

// Maps exported memory onto the device of the same index and makes a stream of it wait for the
// exporter's work on it; if the exporter ends before that work does, the wait fails. Takes `file`,
// also when it fails. `pick` chooses the stream, on the device that the memory is on.
ACCEL_API accelError_t accelIpcImport(
    int file,
    accelStream_t (*pick)(int device, void* user),
    void* user,
    void** ptr,
    size_t* bytes);
// As accelIpcImport for memory that is imported already: waits, and maps nothing.
ACCEL_API accelError_t
accelIpcImportAgain(int file, accelStream_t (*pick)(int device, void* user), void* user);
// Ends an import: it is unmapped, and released for the exporter, once all that is enqueued in this
// process is complete. `ptr` is what accelIpcImport gave.
ACCEL_API accelError_t accelIpcFree(void* ptr);

// An event that several processes record and wait for; it keeps no time. A wait for a recording of
// another process fails if that process ends before it is complete.
typedef struct accelIpcEventHandle {
  char bytes[64];
} accelIpcEventHandle;
ACCEL_API accelError_t accelIpcEventCreate(accelEvent_t* event);
// Bytes by which another process of this user opens the event while it exists here.
ACCEL_API accelError_t accelIpcEventGetHandle(accelEvent_t event, accelIpcEventHandle* handle);
ACCEL_API accelError_t accelIpcEventOpen(const accelIpcEventHandle* handle, accelEvent_t* event);

#ifdef __cplusplus
} // extern "C"
#endif
