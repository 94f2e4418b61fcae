#include "ipc_event.h"

#include <cstring>

#include "os_linux.h"

namespace accel::driver {

namespace {

constexpr uint64_t kRecordings = 128; // that may be incomplete at a time
constexpr uint64_t kMagic = 0x746e657665636361; // "accevent"

struct Handle {
  uint64_t magic;
  uint64_t nonce;
  int32_t process;
  int32_t file;
};
static_assert(sizeof(Handle) <= sizeof(accelIpcEventHandle));

} // namespace

struct SharedEvent::Page {
  uint64_t nonce;
  std::atomic<uint64_t> begun;
  std::atomic<uint64_t> newest;
  struct Slot {
    std::atomic<uint64_t> begun; // the recording that has the slot
    std::atomic<uint64_t> complete; // the one that was completed here last
    std::atomic<int32_t> process;
  } slots[kRecordings];

  Slot& slot(uint64_t recording) {
    return slots[recording % kRecordings];
  }
};

std::shared_ptr<SharedEvent> SharedEvent::create() {
  static_assert(sizeof(Page) <= os::kPageBytes);
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  const int file = os::open_memory("accel-event", os::kPageBytes);
  void* page = file < 0 ? nullptr : os::map_shared(file, os::kPageBytes);
  if (page == nullptr) {
    if (file >= 0) {
      os::close_file(file);
    }
    fail(accelErrorNotSupported, "accel: the system refused the memory of an interprocess event");
    return nullptr;
  }
  std::shared_ptr<SharedEvent> event(new SharedEvent(file, static_cast<Page*>(page)));
  event->page_->nonce = os::random_number();
  return event;
}

std::shared_ptr<SharedEvent> SharedEvent::open(const accelIpcEventHandle& bytes) {
  Handle handle;
  std::memcpy(&handle, bytes.bytes, sizeof(handle));
  if (handle.magic != kMagic) {
    fail(accelErrorInvalidValue, "accel: these bytes are no handle of an interprocess event");
    return nullptr;
  }
  const int file = os::open_file_of(handle.process, handle.file, os::kPageBytes);
  void* page = file < 0 ? nullptr : os::map_shared(file, os::kPageBytes);
  std::shared_ptr<SharedEvent> event;
  if (page != nullptr) {
    event.reset(new SharedEvent(file, static_cast<Page*>(page)));
  } else if (file >= 0) {
    os::close_file(file);
  }
  if (event == nullptr || event->page_->nonce != handle.nonce) {
    fail(
        accelErrorInvalidValue,
        "accel: the interprocess event of this handle does not exist any more; keep it alive in "
        "the process that made it");
    return nullptr;
  }
  return event;
}

SharedEvent::~SharedEvent() {
  os::unreserve(page_, os::kPageBytes);
  os::close_file(file_);
}

void SharedEvent::write_handle(accelIpcEventHandle* bytes) const {
  const Handle handle{kMagic, page_->nonce, os::process_id(), file_};
  std::memset(bytes->bytes, 0, sizeof(bytes->bytes));
  std::memcpy(bytes->bytes, &handle, sizeof(handle));
}

uint64_t SharedEvent::newest() const {
  return page_->newest.load();
}

uint64_t SharedEvent::begin() {
  const uint64_t recording = page_->begun.fetch_add(1) + 1;
  Page::Slot& slot = page_->slot(recording);
  if (slot.complete.load() < slot.begun.load()) {
    fail(
        accelErrorNotSupported,
        "accel: an interprocess event has %d recordings that are not complete; wait for it first",
        static_cast<int>(kRecordings));
    return 0;
  }
  slot.begun.store(recording);
  slot.process.store(os::process_id());
  return recording;
}

void SharedEvent::publish(uint64_t recording) {
  uint64_t before = page_->newest.load();
  while (before < recording && !page_->newest.compare_exchange_weak(before, recording)) {
  }
}

void SharedEvent::complete(uint64_t recording) {
  page_->slot(recording).complete.store(recording);
}

bool SharedEvent::is_complete(uint64_t recording) const {
  return recording == 0 || page_->slot(recording).complete.load() >= recording;
}

bool SharedEvent::is_alive(uint64_t recording) const {
  return os::is_process_alive(page_->slot(recording).process.load());
}

} // namespace accel::driver
