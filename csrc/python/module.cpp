// torch_accel._C: the module, its initialisation and what ties the chip to the interpreter.
#include <torch/csrc/utils/device_lazy_init.h>
#include <unistd.h>

#include "../aten/cpu_allocator.h"
#include "../aten/queued_operator.h"
#include "../aten/register.h"
#include "../driver/accel.h"
#include "../runtime/device.h"
#include "../runtime/error.h"
#include "../runtime/plant.h"
#include "bindings.h"

namespace accel::python {

namespace {

// Every host wait lets go of the GIL, whoever waits: bindings of torch such as UntypedStorage.copy_
// hold it.
void* release_gil() {
  if (Py_IsInitialized() == 0 || PyGILState_Check() == 0 || planted(Plant::kReleaseGil)) {
    return nullptr;
  }
  return PyEval_SaveThread();
}

bool is_finalizing() {
  if (Py_IsInitialized() == 0) {
    return true;
  }
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

void acquire_gil(void* token) {
  // A finalising interpreter gives the GIL to its main thread only. Python would end any other
  // thread by unwinding, through C++ that forbids it: such a thread stays here until the process
  // ends.
  while (is_finalizing() && gettid() != getpid()) {
    pause();
  }
  if (token != nullptr) {
    PyEval_RestoreThread(static_cast<PyThreadState*>(token));
  }
}

void init() {
  lazy_init();
  TORCH_CHECK(
      device_count() > 0,
      "accel: there is no accel device; ACCEL_DEVICES=0 hides the accel devices, unset it to have "
      "one");
  // torch then asks for initialisation again in a forked child, which raises there.
  torch::utils::register_fork_handler_for_device_init(kDeviceType);
}

void bind_process(py::module_& m) {
  def(m, "_init", &init);
  // torch then stops asking for initialisation: torch.accelerator does nothing before it.
  def(m, "_mark_initialized", [] { torch::utils::set_requires_device_init(kDeviceType, false); });
  def(m, "_is_initialized", &is_initialized);
  def(m, "_is_in_bad_fork", [] { return in_bad_fork(); });
  def(m, "_install_fault_handler", [] { check(accelFaultHandlerInstall()); });
}

} // namespace

} // namespace accel::python

PYBIND11_MODULE(_C, m) {
  using namespace accel::python;
  accelWaitHooks hooks{};
  hooks.size = sizeof(hooks);
  hooks.before = &release_gil;
  hooks.after = &acquire_gil;
  accel::check(accelSetWaitHooks(&hooks));
  accel::install_cpu_allocator();
  accel::register_queued_operators();
  accel::register_fallback();
  bind_process(m);
  bind_as_cuda(m);
  bind_autograd(m);
  bind_device(m);
  bind_graphs(m);
  bind_grid(m);
  bind_ipc(m);
  bind_memory(m);
  bind_sanitizer(m);
  bind_snapshot(m);
  bind_testing(m);
}
