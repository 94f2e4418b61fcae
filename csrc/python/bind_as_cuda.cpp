// What torch_accel.as_cuda() needs of C++: a device name, and how torch.device shows itself.
#include <torch/csrc/Device.h>

#include "../runtime/cuda_name.h"
#include "../runtime/device.h"
#include "bindings.h"

namespace accel::python {

namespace {

reprfunc torchs_repr = nullptr;
reprfunc torchs_str = nullptr;

// An accel device as torch shows the CUDA device of its index.
template <reprfunc& shown_by>
PyObject* show_as_cuda(PyObject* self) {
  const auto device = reinterpret_cast<THPDevice*>(self)->device;
  if (device.type() != kDeviceType) {
    return shown_by(self);
  }
  const auto named = py::reinterpret_steal<py::object>(
      THPDevice_New(c10::Device(c10::DeviceType::CUDA, device.index())));
  return shown_by(named.ptr());
}

// torch.device is a static type: Python code cannot set its attributes.
void set_device_attribute(const py::str& name, const py::object& value) {
  if (PyDict_SetItem(THPDeviceType.tp_dict, name.ptr(), value.ptr()) != 0) {
    throw py::error_already_set();
  }
  PyType_Modified(&THPDeviceType);
}

void show_devices_as_cuda(bool on) {
  if (on == (torchs_repr != nullptr)) {
    return;
  }
  if (on) {
    torchs_repr = std::exchange(THPDeviceType.tp_repr, &show_as_cuda<torchs_repr>);
    torchs_str = std::exchange(THPDeviceType.tp_str, &show_as_cuda<torchs_str>);
  } else {
    THPDeviceType.tp_repr = std::exchange(torchs_repr, nullptr);
    THPDeviceType.tp_str = std::exchange(torchs_str, nullptr);
  }
}

} // namespace

void bind_as_cuda(py::module_& m) {
  def(m, "_redirect_cuda_name", &redirect_cuda_name);
  def(m, "_restore_cuda_name", &restore_cuda_name);
  // With the GIL: they change what Python reads.
  m.def("_set_device_attribute", &set_device_attribute);
  m.def("_show_devices_as_cuda", &show_devices_as_cuda);
}

} // namespace accel::python
