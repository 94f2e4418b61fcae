// The parts of torch_accel._C, one file per concern. torch_accel/_C.pyi lists what they bind.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <limits>

namespace accel::python {

void bind_as_cuda(py::module_& m);
void bind_autograd(py::module_& m);
void bind_device(py::module_& m);
void bind_graphs(py::module_& m);
void bind_grid(py::module_& m);
void bind_ipc(py::module_& m);
void bind_memory(py::module_& m);
void bind_sanitizer(py::module_& m);
void bind_snapshot(py::module_& m);
void bind_testing(py::module_& m);

// Binds `function`, which may wait or take a lock, without the GIL; errors and warnings become
// Python's.
template <class Function, class... Extra>
void def(py::module_& m, const char* name, Function&& function, const Extra&... extra) {
  m.def(name, torch::wrap_pybind_function_no_gil(std::forward<Function>(function)), extra...);
}

// A Python index as torch's; every negative one means the current device, or no change.
inline c10::DeviceIndex to_index(int64_t index) {
  constexpr int64_t kLargest = std::numeric_limits<c10::DeviceIndex>::max();
  TORCH_CHECK(
      index <= kLargest, "accel: invalid device index ", index, "; the largest is ", kLargest);
  return index < 0 ? c10::DeviceIndex{-1} : static_cast<c10::DeviceIndex>(index);
}

} // namespace accel::python
