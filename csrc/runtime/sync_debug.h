// Host waits that hide in other operations, told before they begin: what torch.cuda calls its sync
// debug mode, with the Python stack. The mode itself is in stream.h.
#pragma once

#include <string>

namespace accel {

// Hears of a wait: the operation that waits, and the caller in whose name it is counted. Returns
// what a warning or an error adds: the Python stack. May take the GIL: called with nothing locked.
using WaitObserver = std::string (*)(const char* operation, const char* caller);
void set_wait_observer(WaitObserver observer);

// Whether the observer hears of waits where the mode is kDefault, too.
void watch_waits(bool on);

// As note_sync(caller) of stream.h, for an operation that waits in another name.
void note_sync(const char* operation, const char* caller);

} // namespace accel
