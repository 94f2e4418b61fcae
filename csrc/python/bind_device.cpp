// Devices and streams.
#include <torch/csrc/Event.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "../driver/accel.h"
#include "../runtime/device.h"
#include "../runtime/error.h"
#include "../runtime/stream.h"
#include "../runtime/sync_debug.h"
#include "../runtime/warning.h"
#include "bindings.h"

namespace accel::python {

namespace {

// (stream_id, device_index, device_type): the keyword arguments of torch.Stream.
using StreamIds = std::tuple<int64_t, int64_t, int64_t>;

StreamIds ids(c10::Stream stream) {
  return {stream.id(), stream.device_index(), static_cast<int64_t>(stream.device_type())};
}

accelDeviceProp properties(int64_t index) {
  lazy_init();
  accelDeviceProp prop{};
  prop.size = sizeof(prop);
  check(accelDeviceGetProperties(checked_index(to_index(index)), &prop));
  return prop;
}

std::string to_string(const accelDeviceProp& prop) {
  return c10::str(
      "_AccelDeviceProperties(name='",
      prop.name,
      "', total_memory=",
      prop.total_memory >> 20,
      "MB, cores=",
      prop.cores,
      ", lanes=",
      prop.lanes,
      ", sram_per_core=",
      prop.sram_per_core >> 10,
      "KB)");
}

c10::Event& unwrap_event(py::handle object) {
  if (!THPEvent_Check(object.ptr())) {
    throw py::type_error("torch.accel: expected a torch.Event");
  }
  return reinterpret_cast<THPEvent*>(object.ptr())->event;
}

double elapsed_time(py::handle start, py::handle end) {
  return unwrap_event(start).elapsedTime(unwrap_event(end));
}

// Python's function of two names, made of the wait and its caller; never freed.
PyObject* g_wait_observer = nullptr;

std::string observe_wait(const char* operation, const char* caller) {
  if (Py_IsInitialized() == 0) {
    return {};
  }
  const py::gil_scoped_acquire gil;
  try {
    return py::cast<std::string>(py::handle(g_wait_observer)(operation, caller));
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("torch.accel: the observer of host waits");
    return {};
  }
}

void set_current_stream(c10::Stream stream) {
  const auto index = stream.device_index();
  exchange_stream(stream); // validates, so the device changes only if the stream does
  set_device(index);
}

} // namespace

void bind_device(py::module_& m) {
  py::class_<accelDeviceProp>(m, "_AccelDeviceProperties", py::module_local())
      .def_property_readonly("name", [](const accelDeviceProp& p) { return std::string(p.name); })
      .def_readonly("total_memory", &accelDeviceProp::total_memory)
      .def_readonly("cores", &accelDeviceProp::cores)
      .def_readonly("multi_processor_count", &accelDeviceProp::cores)
      .def_readonly("lanes", &accelDeviceProp::lanes)
      .def_readonly("sram_per_core", &accelDeviceProp::sram_per_core)
      .def_readonly("hbm_bytes_per_second", &accelDeviceProp::hbm_bytes_per_second)
      .def_readonly("link_bytes_per_second", &accelDeviceProp::link_bytes_per_second)
      .def_readonly("clock_khz", &accelDeviceProp::clock_khz)
      .def_property_readonly(
          "host_visible", [](const accelDeviceProp& p) { return p.host_visible != 0; })
      .def("__repr__", &to_string);

  def(m, "_device_count", [] { return int{device_count()}; });
  def(m, "_current_device", [] { return int{current_device()}; });
  def(m, "_check_index", [](int64_t index) { return int{checked_index(to_index(index))}; });
  def(m, "_set_device", [](int64_t index) { set_device(to_index(index)); });
  def(m, "_exchange_device", [](int64_t index) { return int{exchange_device(to_index(index))}; });
  def(m, "_maybe_exchange_device", [](int64_t index) {
    return int{unchecked_exchange_device(to_index(index))};
  });
  def(m, "_get_device_properties", &properties);
  def(m, "_abort_device", [](int64_t index) {
    lazy_init();
    check(accelDeviceAbort(checked_index(to_index(index))));
  });
  def(m, "_reset_device", [](int64_t index, int64_t milliseconds) {
    lazy_init();
    constexpr int64_t kLongest = std::numeric_limits<int>::max();
    const auto deadline = static_cast<int>(std::min(milliseconds, kLongest));
    check(accelDeviceReset(checked_index(to_index(index)), deadline));
    emit_collected_warnings();
  });
  def(m, "_synchronize_device", [](int64_t index, const std::string& caller) {
    synchronize_device(to_index(index), caller.c_str());
  });

  def(m, "_current_stream", [](int64_t index) { return ids(current_stream(to_index(index))); });
  def(m, "_default_stream", [](int64_t index) { return ids(default_stream(to_index(index))); });
  def(m, "_set_stream", &set_current_stream);
  def(m, "_stream_priority", [](c10::Stream stream) {
    return accelStreamGetPriority(native(stream));
  });
  def(m, "_stream_priority_range", [] { return std::pair{kLowestPriority, kHighestPriority}; });
  def(m, "_stream_handle", [](c10::Stream stream) {
    return reinterpret_cast<uintptr_t>(native(stream));
  });
  def(m, "_current_stream_handle", [](int64_t index) {
    return reinterpret_cast<uintptr_t>(native(current_stream(to_index(index))));
  });
  def(m, "_stream_from_external", [](uintptr_t handle, int64_t index) {
    return ids(stream_from_external(reinterpret_cast<accelStream_t>(handle), to_index(index)));
  });
  def(m, "_sync_debug_mode", [] { return static_cast<int>(sync_debug_mode()); });
  def(m, "_set_sync_debug_mode", [](int mode) {
    set_sync_debug_mode(static_cast<SyncDebugMode>(mode));
  });
  m.def("_observe_waits", [](py::function observer) {
    g_wait_observer = observer.release().ptr();
    set_wait_observer(&observe_wait);
  });
  def(m, "_watch_waits", &watch_waits);
  def(m, "_synchronize_current_stream", [](int64_t index, const std::string& caller) {
    synchronize_stream(current_stream(to_index(index)), caller.c_str());
  });
  m.def("_elapsed_time", torch::wrap_pybind_function(&elapsed_time));
  def(m, "_sleep", [](uint64_t nanoseconds) {
    check(accelStreamSleep(native(current_stream()), nanoseconds));
  });
}

} // namespace accel::python
