// Storages of other processes.
#include <torch/csrc/Storage.h>

#include "../runtime/ipc.h"
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

} // namespace

void bind_ipc(py::module_& m) {
  m.def("_ipc_share", torch::wrap_pybind_function(&share_storage));
  m.def("_ipc_receive", torch::wrap_pybind_function(&receive_storage));
  def(m, "_ipc_receive_again", &receive_again);
  def(m, "_ipc_collect", &collect_shared);
  def(m, "_ipc_counts", [] {
    const auto counts = count_shared();
    return std::pair{counts.held, counts.pending};
  });
}

} // namespace accel::python
