#include "ipc.h"

#include <c10/util/Exception.h>

#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "error.h"
#include "stream.h"

namespace accel {

namespace {

void free_import(void* ptr) {
  accelIpcFree(ptr); // refuses after shutdown and in a forked child, where nothing is to be done
}

struct DestroyExport {
  void operator()(accelIpcExport_t exported) const {
    accelIpcExportDestroy(exported);
  }
};
using Export = std::unique_ptr<accelIpcExport, DestroyExport>;

struct Shared {
  c10::Storage storage;
  bool resizable = false; // before it was shared
  std::vector<Export> exports;
};

struct Table {
  std::mutex mutex; // a leaf, but for the chip's own locks
  std::unordered_map<const c10::StorageImpl*, Shared> shared;
};

// Leaked: collected until the process ends.
Table& table() {
  static auto* const table = new Table();
  return *table;
}

accelIpcState state_of(const Export& exported) {
  accelIpcState state = accelIpcPending;
  // After shutdown nothing is let go of.
  return accelIpcExportQuery(exported.get(), &state) == accelSuccess ? state : accelIpcPending;
}

thread_local accelEvent_t t_adopted = nullptr;

accelStream_t pick_current(int device, void* /*user*/) {
  return native(current_stream(static_cast<c10::DeviceIndex>(device)));
}

} // namespace

int share(const c10::Storage& storage) {
  collect_shared();
  auto* const impl = storage.unsafeGetStorageImpl();
  TORCH_CHECK(
      storage.device_type() == kDeviceType && storage.nbytes() > 0,
      "accel: only an accel storage that is not empty can be shared");
  TORCH_CHECK(
      impl->data_ptr().get_deleter() != &free_import,
      "Attempted to send accel tensor received from another process; this is not currently "
      "supported. Consider cloning before sending.");
  accelIpcExport_t exported = nullptr;
  int file = -1;
  check(accelIpcExportCreate(storage.data(), storage.nbytes(), &exported, &file));
  Export owned(exported);
  std::lock_guard<std::mutex> lock(table().mutex);
  auto& shared = table().shared[impl];
  if (shared.exports.empty()) {
    shared.storage = storage;
    shared.resizable = impl->resizable();
    // Others hold its memory: a new block would not be theirs, and the old one not free.
    impl->set_resizable(false);
  }
  shared.exports.push_back(std::move(owned));
  return file;
}

c10::Storage receive(int file) {
  lazy_init();
  void* ptr = nullptr;
  size_t bytes = 0;
  check(accelIpcImport(file, &pick_current, nullptr, &ptr, &bytes));
  accelPointerAttributes attributes{};
  attributes.size = sizeof(attributes);
  check(accelPointerGetAttributes(ptr, &attributes));
  const c10::Device device(kDeviceType, static_cast<c10::DeviceIndex>(attributes.device));
  return c10::Storage(
      c10::Storage::use_byte_size_t(),
      bytes,
      c10::DataPtr(ptr, ptr, &free_import, device),
      /*allocator=*/nullptr,
      /*resizable=*/false);
}

void receive_again(int file) {
  lazy_init();
  check(accelIpcImportAgain(file, &pick_current, nullptr));
}

size_t collect_shared() {
  std::vector<c10::Storage> released; // freed unlocked
  std::lock_guard<std::mutex> lock(table().mutex);
  for (auto it = table().shared.begin(); it != table().shared.end();) {
    auto& [impl, shared] = *it;
    std::erase_if(shared.exports, [](const Export& exported) {
      return state_of(exported) == accelIpcReleased;
    });
    if (!shared.exports.empty()) {
      ++it;
      continue;
    }
    shared.storage.unsafeGetStorageImpl()->set_resizable(shared.resizable);
    released.push_back(std::move(shared.storage));
    it = table().shared.erase(it);
  }
  return released.size();
}

SharedCounts count_shared() {
  SharedCounts counts;
  std::lock_guard<std::mutex> lock(table().mutex);
  for (const auto& [impl, shared] : table().shared) {
    for (const auto& exported : shared.exports) {
      const auto state = state_of(exported);
      counts.held += state == accelIpcHeld ? 1 : 0;
      counts.pending += state == accelIpcPending ? 1 : 0;
    }
  }
  return counts;
}

Adopt::Adopt(accelEvent_t event) {
  t_adopted = event;
}

Adopt::~Adopt() {
  accelEventDestroy(take_adopted()); // null once it was adopted
}

accelEvent_t take_adopted() {
  return std::exchange(t_adopted, nullptr);
}

} // namespace accel
