// accel_driver: accel.h for the driver's tests. Addresses are integers, device memory is NumPy
// arrays; no torch.
#include "binding.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "accel_graph.h"
#include "accel_ipc.h"
#include "accel_trace.h"

accelLaunchInfo unknown_info(const char* name) {
  auto info = sized<accelLaunchInfo>();
  info.name = name;
  info.cores = -1;
  std::fill(std::begin(info.bytes), std::end(info.bytes), -1);
  std::fill(std::begin(info.flops), std::end(info.flops), -1);
  return info;
}

namespace {

// True or false for a query.
bool ready(accelError_t code) {
  if (code != accelErrorNotReady) {
    check(code);
  }
  return code == accelSuccess;
}

py::array array_over(uintptr_t address, size_t bytes) {
  return py::array(py::dtype::of<uint8_t>(), {bytes}, {size_t{1}}, pointer(address), py::none());
}

struct Event {
  accelEvent_t handle = nullptr;
};
struct Graph {
  accelGraph_t handle = nullptr;
};
struct Exec {
  accelGraphExec_t handle = nullptr;
};

// ---- Kernels ----

intptr_t g_offset = 0; // device address -> host address

template <class T>
T* on_host(uintptr_t device_address) {
  return reinterpret_cast<T*>(device_address + g_offset);
}

template <class Kernel>
uint64_t launch(Stream stream, accelLaunchInfo info, const Kernel& kernel) {
  auto launch = sized<accelLaunch>();
  launch.info = &info;
  launch.payload_bytes = sizeof(Kernel);
  launch.invoke = [](const void* payload) { return (*static_cast<const Kernel*>(payload))(); };
  void* payload = nullptr;
  check(accelLaunchBegin(stream.handle, &launch, &payload));
  new (payload) Kernel(kernel);
  uint64_t ticket = 0;
  check(accelLaunchCommit(stream.handle, &ticket));
  return ticket;
}

uint64_t fill(Stream stream, uintptr_t address, size_t count, float value) {
  accelAccess access{7, pointer(address), count * sizeof(float), accelAccessWrite, 0, 0};
  accelLaunchInfo info = unknown_info("fill");
  info.cores = 2;
  info.bytes[accelLevelHbm] = static_cast<int64_t>(access.bytes);
  info.accesses = &access;
  info.num_accesses = 1;
  return launch(stream, info, [=] {
    std::fill_n(on_host<float>(address), count, value);
    return accelSuccess;
  });
}

uint64_t axpy(Stream stream, float a, uintptr_t x, uintptr_t y, size_t count) {
  return launch(stream, unknown_info("axpy"), [=] {
    for (size_t i = 0; i < count; ++i) {
      on_host<float>(y)[i] += a * on_host<float>(x)[i];
    }
    return accelSuccess;
  });
}

// Appends `value` to the list at `address`: a count, then the values.
uint64_t append(Stream stream, uintptr_t address, uint32_t value) {
  return launch(stream, unknown_info("append"), [=] {
    uint32_t* list = on_host<uint32_t>(address);
    list[1 + list[0]] = value;
    ++list[0];
    return accelSuccess;
  });
}

struct Message {
  char text[128];
};

Message message(const std::string& text) {
  Message result{};
  std::strncpy(result.text, text.c_str(), sizeof(result.text) - 1);
  return result;
}

uint64_t throwing(Stream stream, const std::string& text) {
  return launch(stream, unknown_info("throwing"), [m = message(text)]() -> accelError_t {
    throw std::runtime_error(m.text);
  });
}

uint64_t failing(Stream stream, int code, const std::string& text) {
  return launch(stream, unknown_info("failing"), [m = message(text), code] {
    accelSetKernelError(m.text);
    return static_cast<accelError_t>(code);
  });
}

// What a kernel may not do; the outcome is its own failure.
uint64_t waiting_kernel(Stream stream) {
  return launch(stream, unknown_info("waiting"), [] {
    uint64_t ticket = 0;
    accelStream_t own = accelStreamOfThisThread(&ticket);
    const accelError_t code = accelStreamWaitTicket(own, ticket, "kernel");
    accelSetKernelError(accelGetLastErrorMessage());
    return code;
  });
}

uint64_t resetting_kernel(Stream stream) {
  return launch(stream, unknown_info("resetting"), [] {
    const accelError_t code = accelDeviceReset(0, 0);
    accelSetKernelError(accelGetLastErrorMessage());
    return code;
  });
}

// Sets the second word at `address` and runs until the first is not 0, whatever happens: what no
// abort can end.
uint64_t busy(Stream stream, uintptr_t address) {
  return launch(stream, unknown_info("busy"), [=] {
    auto* const words = on_host<uint32_t>(address);
    std::atomic_ref<uint32_t>(words[1]).store(1);
    while (std::atomic_ref<uint32_t>(words[0]).load() == 0) {
      std::this_thread::yield();
    }
    return accelSuccess;
  });
}

std::atomic<uint64_t> g_destroyed{0};

// A payload of any length; the kernel writes the sum of its bytes to `address`.
uint64_t checksum(Stream stream, const std::string& bytes, uintptr_t address, bool cancel) {
  struct Header {
    uintptr_t address;
    size_t bytes;
  };
  accelLaunchInfo info = unknown_info("checksum");
  auto launch = sized<accelLaunch>();
  launch.info = &info;
  launch.payload_bytes = sizeof(Header) + bytes.size();
  launch.invoke = [](const void* payload) {
    const Header& header = *static_cast<const Header*>(payload);
    const uint8_t* data = reinterpret_cast<const uint8_t*>(&header + 1);
    uint64_t sum = 0;
    for (size_t i = 0; i < header.bytes; ++i) {
      sum += data[i];
    }
    *on_host<uint64_t>(header.address) = sum;
    return reinterpret_cast<uintptr_t>(payload) % 16 == 0 ? accelSuccess : accelErrorInvalidValue;
  };
  launch.destroy = [](void*) { g_destroyed.fetch_add(1); };
  void* payload = nullptr;
  check(accelLaunchBegin(stream.handle, &launch, &payload));
  Header* header = new (payload) Header{address, bytes.size()};
  std::memcpy(header + 1, bytes.data(), bytes.size());
  if (cancel) {
    accelLaunchCancel(stream.handle);
    return 0;
  }
  uint64_t ticket = 0;
  check(accelLaunchCommit(stream.handle, &ticket));
  return ticket;
}

accelError_t begin_twice(Stream stream) {
  accelLaunchInfo info = unknown_info("twice");
  auto launch = sized<accelLaunch>();
  launch.info = &info;
  launch.invoke = [](const void*) { return accelSuccess; };
  void* payload = nullptr;
  check(accelLaunchBegin(stream.handle, &launch, &payload));
  const accelError_t second = accelLaunchBegin(stream.handle, &launch, &payload);
  accelLaunchCancel(stream.handle);
  return second;
}

// ---- Watching ----

struct Trace {
  std::mutex mutex;
  struct Entry {
    int phase;
    int device;
    uint64_t ticket;
    uint64_t nanoseconds;
    uint64_t correlation;
    std::string name;
    int engine;
    int cores;
    int64_t hbm;
    std::vector<std::tuple<uint64_t, uintptr_t, uint64_t, uint32_t>> accesses;
  };
  std::vector<Entry> entries;
};
Trace g_trace;

accelError_t on_trace(const accelTraceEvent* event, void*) {
  const accelLaunchInfo& info = *event->info;
  Trace::Entry entry{
      event->phase,
      accelStreamGetDevice(event->stream),
      event->ticket,
      event->nanoseconds,
      info.correlation,
      info.name,
      info.engine,
      info.cores,
      info.bytes[accelLevelHbm],
      {}};
  for (uint32_t i = 0; i < info.num_accesses; ++i) {
    const accelAccess& a = info.accesses[i];
    entry.accesses.emplace_back(a.storage, reinterpret_cast<uintptr_t>(a.address), a.bytes, a.mode);
  }
  std::lock_guard<std::mutex> lock(g_trace.mutex);
  g_trace.entries.push_back(std::move(entry));
  return accelSuccess;
}

void set_tracer(bool on) {
  static uint64_t id = 0;
  if (id != 0) {
    check(accelTraceUnsubscribe(std::exchange(id, 0)));
  }
  if (on) {
    accelSubscriber subscriber{};
    subscriber.size = sizeof(subscriber);
    subscriber.phases = 1u << accelTraceEnqueue | 1u << accelTraceBegin | 1u << accelTraceEnd;
    subscriber.callback = on_trace;
    check(accelTraceSubscribe(&subscriber, &id));
  }
}

// A subscriber of Python's: notes what it is told, and refuses launches or stays in its callback
// when asked to.
class Subscriber {
 public:
  explicit Subscriber(uint32_t phases) {
    auto subscriber = sized<accelSubscriber>();
    subscriber.phases = phases;
    subscriber.user = this;
    subscriber.callback = [](const accelTraceEvent* event, void* user) {
      return static_cast<Subscriber*>(user)->on(*event);
    };
    check(accelTraceSubscribe(&subscriber, &id_));
  }
  ~Subscriber() {
    stay.store(false);
    if (id_ != 0) {
      accelTraceUnsubscribe(id_);
    }
  }
  void end() {
    check(accelTraceUnsubscribe(std::exchange(id_, 0)));
  }
  // (phase, device or -1, ticket, name, source ticket, address, bytes) of each event.
  using Event = std::tuple<int, int, uint64_t, std::string, uint64_t, uintptr_t, uint64_t>;
  std::vector<Event> take() {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(events_, {});
  }

  std::atomic<bool> stay{false};
  std::atomic<bool> inside{false};
  std::atomic<bool> refuse{false};

 private:
  accelError_t on(const accelTraceEvent& event) {
    inside.store(true);
    while (stay.load()) {
      std::this_thread::yield();
    }
    inside.store(false);
    std::lock_guard<std::mutex> lock(mutex_);
    events_.emplace_back(
        event.phase,
        event.stream == nullptr ? -1 : accelStreamGetDevice(event.stream),
        event.ticket,
        event.info == nullptr ? "" : event.info->name,
        event.source_ticket,
        reinterpret_cast<uintptr_t>(event.address),
        event.bytes);
    return refuse.load() ? accelTraceRefuse("refused by a test") : accelSuccess;
  }

  uint64_t id_ = 0;
  std::mutex mutex_;
  std::vector<Event> events_;
};

void bind_subscriber(py::module_& m) {
  py::class_<Subscriber>(m, "Subscriber")
      .def(py::init<uint32_t>(), py::arg("phases"))
      .def("end", &Subscriber::end, py::call_guard<py::gil_scoped_release>())
      .def("take", &Subscriber::take)
      .def_property_readonly("inside", [](const Subscriber& s) { return s.inside.load(); })
      .def("stay", [](Subscriber& s, bool on) { s.stay.store(on); })
      .def("refuse", [](Subscriber& s, bool on) { s.refuse.store(on); });
  m.def("trace_note", [](int phase, uintptr_t address, uint64_t bytes) {
    auto event = sized<accelTraceEvent>();
    event.phase = static_cast<accelTracePhase>(phase);
    event.address = pointer(address);
    event.bytes = bytes;
    accelTraceNote(&event);
  });
}

py::list take_trace() {
  std::lock_guard<std::mutex> lock(g_trace.mutex);
  py::list result;
  for (const Trace::Entry& e : g_trace.entries) {
    result.append(
        py::dict(
            py::arg("phase") = e.phase,
            py::arg("device") = e.device,
            py::arg("ticket") = e.ticket,
            py::arg("ns") = e.nanoseconds,
            py::arg("correlation") = e.correlation,
            py::arg("name") = e.name,
            py::arg("engine") = e.engine,
            py::arg("cores") = e.cores,
            py::arg("hbm") = e.hbm,
            py::arg("accesses") = e.accesses));
  }
  g_trace.entries.clear();
  return result;
}

std::map<std::string, uint64_t> waits() {
  std::map<std::string, uint64_t> result;
  accelForEachWait(
      [](const char* caller, uint64_t count, void* user) {
        (*static_cast<std::map<std::string, uint64_t>*>(user))[caller] = count;
      },
      &result);
  return result;
}

void install_gil_hooks() {
  auto hooks = sized<accelWaitHooks>();
  hooks.before = []() -> void* {
    return PyGILState_Check() != 0 ? static_cast<void*>(PyEval_SaveThread()) : nullptr;
  };
  hooks.after = [](void* token) {
    if (token != nullptr) {
      PyEval_RestoreThread(static_cast<PyThreadState*>(token));
    }
  };
  check(accelSetWaitHooks(&hooks));
}

py::dict address_map() {
  auto map = sized<accelAddressMap>();
  check(accelGetAddressMap(&map));
  return py::dict(
      py::arg("device_base") = map.device_base,
      py::arg("host_base") = map.host_base,
      py::arg("window_bytes") = map.window_bytes,
      py::arg("offset") = map.offset,
      py::arg("pinned_base") = map.pinned_base,
      py::arg("pinned_bytes") = map.pinned_bytes);
}

py::dict attributes(uintptr_t address) {
  auto a = sized<accelPointerAttributes>();
  check(accelPointerGetAttributes(pointer(address), &a));
  return py::dict(
      py::arg("kind") = static_cast<int>(a.kind),
      py::arg("device") = a.device,
      py::arg("block") = reinterpret_cast<uintptr_t>(a.block),
      py::arg("bytes") = a.block_bytes,
      py::arg("live") = a.block_live,
      py::arg("owner") = a.owner);
}

py::dict properties(int device) {
  auto p = sized<accelDeviceProp>();
  check(accelDeviceGetProperties(device, &p));
  return py::dict(
      py::arg("name") = p.name,
      py::arg("total_memory") = p.total_memory,
      py::arg("cores") = p.cores,
      py::arg("lanes") = p.lanes,
      py::arg("sram_per_core") = p.sram_per_core,
      py::arg("hbm_bytes_per_second") = p.hbm_bytes_per_second,
      py::arg("link_bytes_per_second") = p.link_bytes_per_second,
      py::arg("clock_khz") = p.clock_khz,
      py::arg("host_visible") = p.host_visible);
}

const char* const kCodes[] = {
    "Success",
    "InvalidValue",
    "InvalidDevice",
    "OutOfMemory",
    "NotReady",
    "LaunchFailure",
    "Forked",
    "Aborted",
    "Config",
    "NotSupported",
    "Capture",
    "Refused"};
static_assert(std::size(kCodes) == accelErrorRefused + 1);

PyObject* g_error_type = nullptr;

void bind_stream(py::module_& m) {
  py::class_<Stream>(m, "Stream")
      .def(
          py::init([](int device, int priority) {
            Stream stream;
            check(accelStreamCreate(device, priority, &stream.handle));
            return stream;
          }),
          py::arg("device") = 0,
          py::arg("priority") = 0)
      .def("destroy", [](Stream s) { check(accelStreamDestroy(s.handle)); })
      .def_property_readonly("device", [](Stream s) { return accelStreamGetDevice(s.handle); })
      .def_property_readonly(
          "handle", [](Stream s) { return reinterpret_cast<uintptr_t>(s.handle); })
      .def_property_readonly("priority", [](Stream s) { return accelStreamGetPriority(s.handle); })
      .def(
          "tickets",
          [](Stream s) {
            uint64_t enqueued = 0;
            uint64_t completed = 0;
            check(accelStreamGetTickets(s.handle, &enqueued, &completed));
            return std::make_pair(enqueued, completed);
          })
      .def("query", [](Stream s) { return ready(accelStreamQuery(s.handle)); })
      .def(
          "synchronize",
          [](Stream s, const char* caller) { check(accelStreamSynchronize(s.handle, caller)); },
          py::arg("caller") = "test")
      .def(
          "wait_ticket",
          [](Stream s, uint64_t ticket, const char* caller) {
            check(accelStreamWaitTicket(s.handle, ticket, caller));
          },
          py::arg("ticket"),
          py::arg("caller") = "test")
      .def("wait_event", [](Stream s, Event e) { check(accelStreamWaitEvent(s.handle, e.handle)); })
      .def(
          "wait_value",
          [](Stream s, uintptr_t address, uint32_t value) {
            check(accelStreamWaitValue32(s.handle, pointer(address), value));
          })
      .def(
          "write_value",
          [](Stream s, uintptr_t address, uint32_t value) {
            check(accelStreamWriteValue32(s.handle, pointer(address), value));
          })
      .def("sleep", [](Stream s, uint64_t ns) { check(accelStreamSleep(s.handle, ns)); })
      .def(
          "begin_capture",
          [](Stream s, int mode) {
            check(accelStreamBeginCapture(s.handle, static_cast<accelCaptureMode>(mode)));
          },
          py::arg("mode") = 0)
      .def(
          "end_capture",
          [](Stream s) {
            Graph graph;
            check(accelStreamEndCapture(s.handle, &graph.handle));
            return graph;
          })
      .def("capture_info", [](Stream s) {
        accelCaptureStatus status = accelCaptureNone;
        uint64_t id = 0;
        check(accelStreamGetCaptureInfo(s.handle, &status, &id));
        return std::make_pair(static_cast<int>(status), id);
      });

  py::class_<Event>(m, "Event")
      .def(
          py::init([](uint32_t flags) {
            Event event;
            check(accelEventCreate(flags, &event.handle));
            return event;
          }),
          py::arg("flags") = 0)
      .def(
          "destroy",
          [](Event& e) {
            accelEventDestroy(e.handle);
            e.handle = nullptr;
          })
      .def("record", [](Event e, Stream s) { check(accelEventRecord(e.handle, s.handle)); })
      .def("query", [](Event e) { return ready(accelEventQuery(e.handle)); })
      .def(
          "synchronize",
          [](Event e, const char* caller) { check(accelEventSynchronize(e.handle, caller)); },
          py::arg("caller") = "test")
      .def("elapsed", [](Event e, Event end) {
        double ms = 0;
        check(accelEventElapsedTime(&ms, e.handle, end.handle));
        return ms;
      });
}

void bind_graphs(py::module_& m) {
  py::class_<Graph>(m, "Graph")
      .def(
          "nodes", // (name, dependencies)
          [](Graph g) {
            std::vector<std::pair<std::string, std::vector<uint32_t>>> nodes;
            check(accelGraphForEachNode(
                g.handle,
                [](const accelGraphNode* n, void* user) {
                  static_cast<decltype(nodes)*>(user)->push_back(
                      {n->info->name, {n->dependencies, n->dependencies + n->num_dependencies}});
                },
                &nodes));
            return nodes;
          })
      .def(
          "instantiate",
          [](Graph g) {
            Exec exec;
            check(accelGraphInstantiate(&exec.handle, g.handle));
            return exec;
          })
      .def("destroy", [](Graph& g) { accelGraphDestroy(std::exchange(g.handle, nullptr)); });

  py::class_<Exec>(m, "Exec")
      .def(
          "launch",
          [](Exec e, Stream s, const std::vector<std::pair<uintptr_t, uint64_t>>& words) {
            std::vector<accelGraphWord> written;
            for (const auto& [place, value] : words) {
              written.push_back({reinterpret_cast<uint64_t*>(place), value});
            }
            uint64_t ticket = 0;
            check(accelGraphLaunch(
                e.handle,
                s.handle,
                written.data(),
                static_cast<uint32_t>(written.size()),
                &ticket));
            return ticket;
          },
          py::arg("stream"),
          py::arg("words") = std::vector<std::pair<uintptr_t, uint64_t>>())
      .def("synchronize", [](Exec e) { check(accelGraphExecSynchronize(e.handle, "test")); })
      .def("destroy", [](Exec& e) { accelGraphExecDestroy(std::exchange(e.handle, nullptr)); });

  m.def("exchange_capture_mode", [](int mode) {
    auto value = static_cast<accelCaptureMode>(mode);
    check(accelThreadExchangeCaptureMode(&value));
    return static_cast<int>(value);
  });
  m.def(
      "forbid", [](const std::string& call) { check(accelCaptureForbid(nullptr, call.c_str())); });
}

void bind_memory(py::module_& m) {
  m.def("malloc", [](int device, size_t bytes) {
    void* ptr = nullptr;
    check(accelMalloc(device, bytes, &ptr));
    return reinterpret_cast<uintptr_t>(ptr);
  });
  m.def("free", [](uintptr_t address) { check(accelFree(pointer(address))); });
  m.def("mem_info", [](int device) {
    size_t free = 0;
    size_t total = 0;
    check(accelMemGetInfo(device, &free, &total));
    return std::make_pair(free, total);
  });
  m.def("address_map", address_map);
  m.def("arena", [](int device) {
    void* host = nullptr;
    size_t bytes = 0;
    check(accelGetArena(device, &host, &bytes));
    return array_over(reinterpret_cast<uintptr_t>(host), bytes);
  });
  m.def("attributes", attributes);
  m.def("block_set", [](uintptr_t address, size_t bytes, int owner, int live) {
    check(accelBlockSet(pointer(address), bytes, owner, live));
  });
  m.def("host_alloc", [](size_t bytes) {
    void* ptr = nullptr;
    check(accelHostAlloc(bytes, &ptr));
    return reinterpret_cast<uintptr_t>(ptr);
  });
  m.def("host_free", [](uintptr_t address) { check(accelHostFree(pointer(address))); });
  m.def("array_over", array_over);
  m.def(
      "memcpy",
      [](uintptr_t dst, uintptr_t src, size_t bytes, Stream s, const char* caller) {
        check(accelMemcpyAsync(pointer(dst), pointer(src), bytes, s.handle, caller));
      },
      py::arg("dst"),
      py::arg("src"),
      py::arg("bytes"),
      py::arg("stream"),
      py::arg("caller") = "test");
  m.def("memset", [](uintptr_t dst, int value, size_t bytes, Stream s) {
    check(accelMemsetAsync(pointer(dst), value, bytes, s.handle));
  });
  m.def(
      "dereference", [](uintptr_t address) { return *reinterpret_cast<volatile char*>(address); });
}

struct Export {
  accelIpcExport_t handle = nullptr;
};

accelStream_t pick_stream(int /*device*/, void* user) {
  return static_cast<Stream*>(user)->handle;
}

void bind_ipc(py::module_& m) {
  py::class_<Export>(m, "Export")
      .def(
          "state",
          [](Export e) {
            accelIpcState state = accelIpcPending;
            check(accelIpcExportQuery(e.handle, &state));
            return std::string(
                state == accelIpcPending    ? "pending"
                    : state == accelIpcHeld ? "held"
                                            : "released");
          })
      .def("destroy", [](Export& e) {
        accelIpcExportDestroy(e.handle);
        e.handle = nullptr;
      });
  m.def("ipc_export", [](uintptr_t address, size_t bytes) {
    Export exported;
    int file = -1;
    check(accelIpcExportCreate(pointer(address), bytes, &exported.handle, &file));
    return std::make_pair(exported, file);
  });
  m.def("ipc_import", [](int file, Stream stream) {
    void* ptr = nullptr;
    size_t bytes = 0;
    check(accelIpcImport(file, pick_stream, &stream, &ptr, &bytes));
    return std::make_pair(reinterpret_cast<uintptr_t>(ptr), bytes);
  });
  m.def("ipc_import_again", [](int file, Stream stream) {
    check(accelIpcImportAgain(file, pick_stream, &stream));
  });
  m.def("ipc_free", [](uintptr_t address) { check(accelIpcFree(pointer(address))); });
}

} // namespace

PYBIND11_MODULE(accel_driver, m) {
  g_error_type = PyErr_NewException("accel_driver.Error", PyExc_RuntimeError, nullptr);
  m.attr("Error") = py::handle(g_error_type);
  py::register_exception_translator([](std::exception_ptr error) {
    try {
      std::rethrow_exception(error);
    } catch (const DriverError& e) {
      PyErr_SetObject(g_error_type, py::make_tuple(kCodes[e.code], e.text).ptr());
    }
  });
  m.attr("CODES") = std::vector<std::string>(std::begin(kCodes), std::end(kCodes));

  m.def("init", [] {
    check(accelInit());
    auto map = sized<accelAddressMap>();
    check(accelGetAddressMap(&map));
    g_offset = map.offset;
    install_gil_hooks();
  });
  m.def("is_initialized", [] { return accelIsInitialized() != 0; });
  m.def("in_bad_fork", [] { return accelInBadFork() != 0; });
  m.def("shutdown", accelShutdown);
  m.def("install_fault_handler", [] { check(accelFaultHandlerInstall()); });
  m.def("device_count", [] {
    int count = 0;
    check(accelGetDeviceCount(&count));
    return count;
  });
  m.def("properties", properties);
  m.def(
      "device_synchronize",
      [](int device, const char* caller) { check(accelDeviceSynchronize(device, caller)); },
      py::arg("device"),
      py::arg("caller") = "test");
  m.def("abort", [](int device) { check(accelDeviceAbort(device)); });
  m.def(
      "reset",
      [](int device, int deadline_ms) {
        accelError_t code = accelSuccess;
        {
          const py::gil_scoped_release release;
          code = accelDeviceReset(device, deadline_ms);
        }
        check(code);
      },
      py::arg("device"),
      py::arg("deadline_ms") = -1);
  m.def("get_launch_blocking", [] { return accelGetLaunchBlocking() != 0; });
  m.def("set_launch_blocking", accelSetLaunchBlocking);
  m.def("waits", waits);
  m.def("set_tracer", set_tracer);
  bind_subscriber(m);
  m.def("take_trace", take_trace);

  m.def("fill", fill);
  m.def("axpy", axpy);
  m.def("append", append);
  m.def("throwing", throwing);
  m.def("failing", failing);
  m.def("waiting_kernel", waiting_kernel);
  m.def(
      "checksum",
      checksum,
      py::arg("stream"),
      py::arg("data"),
      py::arg("address"),
      py::arg("cancel") = false);
  m.def("device_of_handle", [](uintptr_t handle) {
    return accelStreamGetDevice(reinterpret_cast<accelStream_t>(handle));
  });
  m.def("busy", busy);
  m.def("resetting_kernel", resetting_kernel);
  m.def("begin_twice", [](Stream s) { check(begin_twice(s)); });
  m.def("destroyed", [] { return g_destroyed.load(); });
  bind_stream(m);
  bind_graphs(m);
  bind_memory(m);
  bind_ipc(m);
  bind_grid(m);
}
