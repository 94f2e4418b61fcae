// Storages shared with other processes: who holds what.
#pragma once

#include <c10/core/Storage.h>

#include <cstddef>

#include "../driver/accel_ipc.h"

namespace accel {

// Offers `storage` to one process: a descriptor that receive() takes there, owned by the caller.
// The storage cannot be resized, and its memory is kept, until nobody has the descriptor or what
// was received from it. Throws, in torch.cuda's words, for one that was itself received.
int share(const c10::Storage& storage);
// The storage behind a descriptor, which is taken, on the device of the same index. The current
// stream waits until what the sender had enqueued on that device when it shared the storage is
// done.
c10::Storage receive(int file);
// For a storage that is here already: the current stream waits as in receive.
void receive_again(int file);

// Lets go of the storages that no other process holds any more; returns how many.
size_t collect_shared();
struct SharedCounts {
  size_t held = 0; // received by another process
  size_t pending = 0; // not yet
};
SharedCounts count_shared();

// Events of several processes. torch.Event makes the chip's event in the guard, when it is first
// recorded; while an Adopt lives, that first record of this thread only takes `event`.
class Adopt {
 public:
  explicit Adopt(accelEvent_t event);
  ~Adopt();
  Adopt(const Adopt&) = delete;
  Adopt& operator=(const Adopt&) = delete;
};
// For the guard: what is to be adopted, or null.
accelEvent_t take_adopted();

} // namespace accel
