#include "trace.h"

#include <array>
#include <mutex>

#include "error.h"
#include "os_linux.h"
#include "process.h"

namespace accel::driver {

std::atomic<uint32_t> g_traced{0};

namespace {

// A place for a subscriber. Who calls back counts itself in before it looks at `phases`; who ends
// the subscription clears `phases` before it looks at the count. Both sequentially consistent: so
// either the caller sees no phases, or the count holds the end back.
struct Slot {
  std::atomic<uint32_t> running{0};
  std::atomic<uint32_t> phases{0};
  accelError_t (*callback)(const accelTraceEvent*, void*) = nullptr; // written while phases is 0
  void* user = nullptr;
  uint64_t id = 0; // guarded by the table's mutex; 0: free
};

struct Table {
  std::mutex mutex; // never taken by who calls back
  std::array<Slot, 8> slots;
  uint64_t ids = 0;

  void update() {
    uint32_t phases = 0;
    for (const Slot& slot : slots) {
      phases |= slot.phases.load();
    }
    g_traced.store(phases);
  }
};

Table& table() {
  static Table* table = new Table(); // leaked: used at exit
  return *table;
}

} // namespace

accelError_t publish(accelTraceEvent event) {
  event.size = sizeof(event);
  event.nanoseconds = os::now();
  accelError_t first = accelSuccess;
  for (Slot& slot : table().slots) {
    if ((slot.phases.load(std::memory_order_relaxed) & (1u << event.phase)) == 0) {
      continue;
    }
    slot.running.fetch_add(1);
    if ((slot.phases.load() & (1u << event.phase)) != 0) {
      const accelError_t code = slot.callback(&event, slot.user);
      first = first == accelSuccess ? code : first;
    }
    slot.running.fetch_sub(1);
  }
  return first;
}

} // namespace accel::driver

using namespace accel::driver;

extern "C" accelError_t accelTraceSubscribe(const accelSubscriber* subscriber, uint64_t* id) {
  return frame([&] {
    if (subscriber == nullptr || id == nullptr || subscriber->size < sizeof(accelSubscriber) ||
        subscriber->callback == nullptr) {
      return invalid("accelTraceSubscribe", "an argument is null or the struct's size too small");
    }
    Table& all = table();
    std::lock_guard<std::mutex> lock(all.mutex);
    for (Slot& slot : all.slots) {
      if (slot.id == 0) {
        slot.id = *id = ++all.ids;
        slot.callback = subscriber->callback;
        slot.user = subscriber->user;
        slot.phases.store(subscriber->phases);
        all.update();
        return accelSuccess;
      }
    }
    return fail(
        accelErrorNotSupported,
        "accel: accelTraceSubscribe: there are %zu subscribers already; end one first",
        all.slots.size());
  });
}

extern "C" accelError_t accelTraceUnsubscribe(uint64_t id) {
  return frame([&] {
    Table& all = table();
    Slot* found = nullptr;
    {
      std::lock_guard<std::mutex> lock(all.mutex);
      for (Slot& slot : all.slots) {
        if (id != 0 && slot.id == id) {
          found = &slot;
          slot.phases.store(0);
          all.update();
        }
      }
    }
    if (found == nullptr) {
      return invalid("accelTraceUnsubscribe", "there is no subscriber of that id");
    }
    while (found->running.load() != 0) {
      os::yield();
    }
    std::lock_guard<std::mutex> lock(all.mutex);
    found->id = 0; // from now on somebody else's
    return accelSuccess;
  });
}

extern "C" accelError_t accelTraceRefuse(const char* message) {
  return frame([&] { return fail_with(accelErrorRefused, message == nullptr ? "" : message); });
}

extern "C" void accelTraceNote(const accelTraceEvent* event) {
  if (event != nullptr && event->size >= sizeof(accelTraceEvent) && traced(event->phase)) {
    (void)publish(*event);
  }
}
