// Storages and events of other processes.
#include <torch/csrc/Event.h>
#include <torch/csrc/Storage.h>

#include <algorithm>
#include <optional>
#include <string>

#include "../runtime/error.h"
#include "../runtime/ipc.h"
#include "../runtime/stream.h"
#include "bindings.h"

namespace accel::python {

namespace {

int share_storage(py::handle object) {
  if (!THPStorage_Check(object.ptr())) {
    throw py::type_error("accel: expected a torch.UntypedStorage");
  }
  const c10::Storage storage = THPStorage_Unpack(object.ptr());
  py::gil_scoped_release no_gil;
  return share(storage);
}

py::object receive_storage(int file) {
  auto storage = [&] {
    py::gil_scoped_release no_gil;
    return receive(file);
  }();
  return py::reinterpret_steal<py::object>(THPStorage_Wrap(std::move(storage)));
}

c10::Event& unwrap_event(py::handle object) {
  if (!THPEvent_Check(object.ptr())) {
    throw py::type_error("torch.accel: expected a torch.Event");
  }
  return reinterpret_cast<THPEvent*>(object.ptr())->event;
}

// `event` is a fresh torch.Event. Without a handle, makes an event of several processes.
void share_event(py::handle object, int64_t device, const std::optional<std::string>& handle) {
  accelEvent_t event = nullptr;
  if (handle) {
    accelIpcEventHandle bytes;
    TORCH_CHECK_VALUE(
        handle->size() == sizeof(bytes.bytes),
        "torch.accel.Event: a handle has ",
        sizeof(bytes.bytes),
        " bytes, not ",
        handle->size());
    std::copy(handle->begin(), handle->end(), bytes.bytes);
    check(accelIpcEventOpen(&bytes, &event));
  } else {
    check(accelIpcEventCreate(&event));
  }
  const Adopt adopt(event);
  unwrap_event(object).record(default_stream(to_index(device)));
}

py::bytes event_handle(py::handle object) {
  accelIpcEventHandle handle;
  check(accelIpcEventGetHandle(static_cast<accelEvent_t>(unwrap_event(object).eventId()), &handle));
  return {handle.bytes, sizeof(handle.bytes)};
}

} // namespace

void bind_ipc(py::module_& m) {
  m.def("_ipc_share", torch::wrap_pybind_function(&share_storage));
  m.def("_ipc_receive", torch::wrap_pybind_function(&receive_storage));
  m.def("_ipc_share_event", torch::wrap_pybind_function(&share_event));
  m.def("_ipc_event_handle", torch::wrap_pybind_function(&event_handle));
  def(m, "_ipc_receive_again", &receive_again);
  def(m, "_ipc_collect", &collect_shared);
  def(m, "_ipc_counts", [] {
    const auto counts = count_shared();
    return std::pair{counts.held, counts.pending};
  });
}

} // namespace accel::python
