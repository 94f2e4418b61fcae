// Memory between processes. An export is a socket: its first message carries the arena's memory
// file and says where in it, its second that the exporter's queued work is done. The importer
// answers with one byte, and both read from the end of the stream that the other one is gone.
#include "ipc.h"

#include <memory>
#include <set>
#include <unordered_map>

#include "accel_ipc.h"
#include "launch.h"
#include "process.h"
#include "stream.h"
#include "worker.h"

namespace accel::driver {

namespace {

struct OpenSockets {
  std::mutex mutex; // a leaf; held over fork(), so that the child finds the set whole
  std::set<int> files;
};

OpenSockets& open_sockets() {
  static OpenSockets* sockets = new OpenSockets();
  return *sockets;
}

constexpr uint32_t kVersion = 1;
constexpr uint64_t kNap = 20'000'000; // between two looks at the abort word

struct Offer {
  uint32_t magic = 0x6c636361; // "accl"
  uint32_t version = kVersion;
  int32_t device = 0;
  uint64_t offset = 0; // in the arena
  uint64_t bytes = 0;
};
constexpr char kReady = 'r';

} // namespace

Socket::Socket(int file) : file(file) {
  OpenSockets& sockets = open_sockets();
  std::lock_guard<std::mutex> lock(sockets.mutex);
  sockets.files.insert(file);
}

Socket::~Socket() {
  os::hang_up(file);
  OpenSockets& sockets = open_sockets();
  std::lock_guard<std::mutex> lock(sockets.mutex);
  sockets.files.erase(file);
  os::close_file(file); // under the lock: the number is up for reuse
}

void before_fork() {
  open_sockets().mutex.lock();
}

void after_fork_in_parent() {
  open_sockets().mutex.unlock();
}

void after_fork_in_child() {
  for (const int file : open_sockets().files) {
    os::close_file(file);
  }
  open_sockets().mutex.unlock();
}

namespace {

using SocketPtr = std::shared_ptr<Socket>;

// Tells the importer once the streams that were busy at the export have come here.
struct Announcement {
  SocketPtr socket;
  std::atomic<size_t> missing;

  void arrive() {
    if (missing.fetch_sub(1) == 1) {
      os::send(socket->file, &kReady, sizeof(kReady));
    }
  }
};

struct Arrive {
  std::shared_ptr<Announcement> announcement;

  accelError_t run() const {
    announcement->arrive();
    return accelSuccess;
  }
};

std::vector<accelStream_t> busy(const std::vector<accelStream_t>& streams) {
  std::vector<accelStream_t> found;
  for (accelStream_t stream : streams) {
    if (stream->completion.value() < stream->enqueued.load()) {
      found.push_back(stream);
    }
  }
  return found;
}

accelError_t announce(Device& device, const SocketPtr& socket) {
  const std::vector<accelStream_t> streams = busy(device.streams());
  auto announcement = std::make_shared<Announcement>();
  announcement->socket = socket;
  announcement->missing.store(streams.size() + 1);
  for (accelStream_t stream : streams) {
    const accelLaunchInfo info = make_info("ipc_export", accelEngineHost);
    if (const accelError_t code = enqueue(stream, info, Arrive{announcement}, nullptr)) {
      return code;
    }
  }
  announcement->arrive();
  return accelSuccess;
}

// Imported memory; unmapped and released when the last launch that may use it lets go.
struct Import {
  Import(SocketPtr socket, Device& device) : socket(std::move(socket)), device(device) {}
  ~Import() {
    if (bytes == 0) {
      return;
    }
    g_chip->blocks.clear(window_offset(), bytes);
    os::unmap_private(reinterpret_cast<void*>(device.host_base + offset), bytes);
    std::lock_guard<std::mutex> lock(device.memory_mutex);
    device.imports.release(offset - device.bytes);
  }
  Import(const Import&) = delete;
  Import& operator=(const Import&) = delete;

  uint64_t window_offset() const {
    return g_chip->map.slot_offset(device.index) + offset;
  }

  const SocketPtr socket; // outlives the mapping: see ~Import
  Device& device;
  uint64_t offset = 0; // of whole pages, in the device's slot
  uint64_t bytes = 0;
};

struct WaitForExporter {
  SocketPtr socket;

  accelError_t run() const {
    const std::atomic<uint32_t>& aborted = stream_of_this_thread()->device.aborted;
    while (aborted.load() == 0) {
      switch (os::listen(socket->file, kNap)) {
        case os::Peer::kSpeaks:
          return accelSuccess; // left there: a launch may run twice
        case os::Peer::kGone:
          accelSetKernelError(
              "the process that shared this memory ended before its queued work on it was done");
          return accelErrorLaunchFailure;
        case os::Peer::kSilent:
          break;
      }
    }
    return accelErrorAborted;
  }
};

struct Imports {
  std::mutex mutex; // a leaf
  std::unordered_map<void*, std::shared_ptr<Import>> map;
  // Those that a stream did not take: let go of when its ticket is complete.
  struct Kept {
    accelStream_t stream;
    uint64_t ticket;
    std::shared_ptr<Import> import;
  };
  std::vector<Kept> kept;
};

Imports& imports() {
  static Imports* imports = new Imports();
  return *imports;
}

struct LetGo {
  std::shared_ptr<Import> import;

  accelError_t run() const {
    return accelSuccess;
  }
};

void settle_kept() {
  std::vector<std::shared_ptr<Import>> done; // destroyed unlocked
  std::lock_guard<std::mutex> lock(imports().mutex);
  std::erase_if(imports().kept, [&](Imports::Kept& kept) {
    const bool complete = kept.stream->completion.value() >= kept.ticket;
    if (complete) {
      done.push_back(std::move(kept.import));
    }
    return complete;
  });
}

accelError_t gone() {
  return fail(
      accelErrorInvalidValue,
      "accel: the process that shared this memory has ended or has taken it back");
}

// Reads what is offered. `arena` becomes the caller's, -1 if none came.
accelError_t read_offer(const Socket& socket, Offer* offer, int* arena) {
  *arena = -1;
  const bool speaks = os::listen(socket.file, 0) == os::Peer::kSpeaks;
  if (!speaks) {
    return gone();
  }
  const Offer expected;
  if (!os::receive(socket.file, offer, sizeof(*offer), arena) || offer->magic != expected.magic ||
      offer->version != expected.version || *arena < 0) {
    return invalid("accelIpcImport", "the descriptor is not one of accelIpcExportCreate's");
  }
  return accelSuccess;
}

accelError_t wait_for_exporter(const SocketPtr& socket, accelStream_t stream) {
  if (stream == nullptr) {
    return invalid("accelIpcImport", "there is no stream to wait on");
  }
  if (os::listen(socket->file, 0) == os::Peer::kSpeaks) {
    return accelSuccess;
  }
  return enqueue(
      stream, make_info("ipc_import", accelEngineHost), WaitForExporter{socket}, nullptr);
}

accelError_t map_import(Import& import, const Offer& offer, int arena, uint64_t* lead) {
  *lead = offer.offset % os::kPageBytes;
  const uint64_t bytes =
      (*lead + offer.bytes + os::kPageBytes - 1) / os::kPageBytes * os::kPageBytes;
  Device& device = import.device;
  std::optional<uint64_t> found;
  {
    std::lock_guard<std::mutex> lock(device.memory_mutex);
    found = device.imports.allocate(bytes);
  }
  if (!found) {
    return fail(
        accelErrorOutOfMemory,
        "accel: no address space left on accel:%d for %llu bytes of another process; lower "
        "ACCEL_MEMORY or ACCEL_DEVICES",
        device.index,
        static_cast<unsigned long long>(bytes));
  }
  import.offset = device.bytes + *found;
  import.bytes = bytes;
  void* place = reinterpret_cast<void*>(device.host_base + import.offset);
  if (!os::map_memory(place, bytes, arena, offer.offset - *lead)) {
    return fail(accelErrorOutOfMemory, "accel: the system refused to map another process's memory");
  }
  g_chip->blocks.set(import.window_offset(), bytes, 0, true);
  return accelSuccess;
}

template <class Body>
accelError_t with_offer(int file, const Body& body) {
  // Closed in every case, so before any other check.
  const SocketPtr socket = std::make_shared<Socket>(file);
  return entry([&] {
    settle_kept();
    Offer offer;
    int arena = -1;
    accelError_t code = read_offer(*socket, &offer, &arena);
    Device* device = code == accelSuccess ? find_device(offer.device) : nullptr;
    if (code == accelSuccess) {
      code = device == nullptr ? accelErrorInvalidDevice : body(socket, offer, arena, *device);
    }
    if (arena >= 0) {
      os::close_file(arena);
    }
    return code;
  });
}

} // namespace

} // namespace accel::driver

using namespace accel::driver;

struct accelIpcExport {
  SocketPtr socket;
};

extern "C" accelError_t
accelIpcExportCreate(const void* ptr, size_t bytes, accelIpcExport_t* exported, int* file) {
  return entry([&] {
    const Located place = locate(reinterpret_cast<uintptr_t>(ptr));
    if (exported == nullptr || file == nullptr || bytes == 0) {
      return invalid("accelIpcExportCreate", "a result pointer is null or the size is 0");
    }
    if (place.kind != accelMemoryDevice || place.device < 0 || bytes > place.end - place.offset) {
      return invalid("accelIpcExportCreate", "the range is not all in the memory of one device");
    }
    if (place.imported) {
      return fail(
          accelErrorNotSupported,
          "accel: memory received from another process cannot be shared again; share a copy");
    }
    int ends[2];
    if (!os::open_pair(ends)) {
      return fail(accelErrorNotSupported, "accel: the system has no descriptor left (ulimit -n)");
    }
    const SocketPtr socket = std::make_shared<Socket>(ends[0]);
    Device& device = *g_chip->devices[place.device];
    Offer offer;
    offer.device = place.device;
    offer.offset = place.offset - g_chip->map.slot_offset(place.device);
    offer.bytes = bytes;
    accelError_t code = os::send(ends[0], &offer, sizeof(offer), device.file())
        ? announce(device, socket)
        : fail(accelErrorNotSupported, "accel: the system refused to send a descriptor");
    if (code != accelSuccess) {
      os::close_file(ends[1]);
      return code;
    }
    *exported = new accelIpcExport{socket};
    *file = ends[1];
    return accelSuccess;
  });
}

extern "C" accelError_t accelIpcExportQuery(accelIpcExport_t exported, accelIpcState* state) {
  return entry([&] {
    if (exported == nullptr || state == nullptr) {
      return invalid("accelIpcExportQuery", "an argument is null");
    }
    const int file = exported->socket->file;
    *state = os::is_gone(file)                     ? accelIpcReleased
        : os::listen(file, 0) == os::Peer::kSpeaks ? accelIpcHeld
                                                   : accelIpcPending;
    return accelSuccess;
  });
}

extern "C" void accelIpcExportDestroy(accelIpcExport_t exported) {
  (void)entry([&] {
    delete exported;
    return accelSuccess;
  });
}

extern "C" accelError_t accelIpcImport(
    int file,
    accelStream_t (*pick)(int device, void* user),
    void* user,
    void** ptr,
    size_t* bytes) {
  return with_offer(
      file, [&](const SocketPtr& socket, const Offer& offer, int arena, Device& device) {
        if (pick == nullptr || ptr == nullptr || bytes == nullptr) {
          return invalid("accelIpcImport", "an argument is null");
        }
        auto import = std::make_shared<Import>(socket, device);
        uint64_t lead = 0;
        if (const accelError_t code = map_import(*import, offer, arena, &lead)) {
          return code;
        }
        if (const accelError_t code = wait_for_exporter(socket, pick(device.index, user))) {
          return code;
        }
        os::send(socket->file, &kReady, sizeof(kReady));
        *ptr = reinterpret_cast<void*>(device.device_base + import->offset + lead);
        *bytes = offer.bytes;
        std::lock_guard<std::mutex> lock(imports().mutex);
        imports().map.emplace(*ptr, std::move(import));
        return accelSuccess;
      });
}

extern "C" accelError_t
accelIpcImportAgain(int file, accelStream_t (*pick)(int device, void* user), void* user) {
  return with_offer(file, [&](const SocketPtr& socket, const Offer&, int, Device& device) {
    return pick == nullptr ? invalid("accelIpcImportAgain", "an argument is null")
                           : wait_for_exporter(socket, pick(device.index, user));
  });
}

extern "C" accelError_t accelIpcFree(void* ptr) {
  return entry([&] {
    settle_kept();
    std::shared_ptr<Import> import;
    {
      std::lock_guard<std::mutex> lock(imports().mutex);
      const auto found = imports().map.find(ptr);
      if (found == imports().map.end()) {
        return invalid("accelIpcFree", "the address is not one of accelIpcImport's");
      }
      import = std::move(found->second);
      imports().map.erase(found);
    }
    // Launches on any device may name it. The last stream to come to the end of them unmaps.
    for (const auto& device : g_chip->devices) {
      for (accelStream_t stream : busy(device->streams())) {
        const uint64_t ticket = stream->enqueued.load();
        const accelLaunchInfo info = make_info("ipc_free", accelEngineHost);
        if (enqueue(stream, info, LetGo{import}, nullptr) != accelSuccess) {
          std::lock_guard<std::mutex> lock(imports().mutex);
          imports().kept.push_back({stream, ticket, import});
        }
      }
    }
    return accelSuccess;
  });
}
