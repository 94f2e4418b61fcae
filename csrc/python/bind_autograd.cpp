// What autograd's own threads owe the interpreter before it ends.
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>

#include "../runtime/device.h"
#include "bindings.h"

namespace accel::python {

namespace {

using torch::autograd::variable_list;

struct Nothing final : torch::autograd::Node {
  variable_list apply(variable_list&& /*grads*/) override {
    return {};
  }
};

// backward() returns while the thread of the device may still hold the graph it ran. If it is the
// last to let go of a Python object and the interpreter is ending, Python unwinds the thread,
// through a noexcept function of torch 2.13: std::terminate (tests/runtime/test_exit.py shows it).
// A task of its own, which launches nothing, ends after all of that.
void settle_engine() {
  for (c10::DeviceIndex index = 0; index < device_count(); ++index) {
    const auto input = at::empty({0}, at::TensorOptions().device(c10::Device(kDeviceType, index)));
    auto root = c10::make_intrusive<Nothing>();
    root->add_input_metadata(input);
    torch::autograd::Engine::get_default_engine().execute(
        {{std::move(root), 0}},
        {input},
        /*keep_graph=*/false,
        /*create_graph=*/false,
        /*accumulate_grad=*/true);
  }
}

} // namespace

void bind_autograd(py::module_& m) {
  def(m, "_settle_engine", &settle_engine);
}

} // namespace accel::python
