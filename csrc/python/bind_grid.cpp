// Compiled kernels of the Python package.
#include <memory>
#include <utility>
#include <vector>

#include "grid_kernel.h"
#include "launch_cache.h"

namespace accel::python {

void bind_grid(py::module_& m) {
  bind_launch_cache(m);
  py::class_<GridKernel>(m, "_GridKernel", py::module_local())
      .def(
          "launch",
          torch::wrap_pybind_function([](const GridKernel& kernel,
                                         int64_t x,
                                         int64_t y,
                                         int64_t z,
                                         uintptr_t stream,
                                         bool cooperative,
                                         const py::tuple& args) {
            kernel.launch(
                {x, y, z},
                reinterpret_cast<accelStream_t>(stream),
                cooperative,
                PySequence_Fast_ITEMS(args.ptr()),
                args.size());
          }));
  m.def(
      "_load_grid_kernel",
      torch::wrap_pybind_function([](std::string name,
                                     uintptr_t function,
                                     uintptr_t cost,
                                     py::object owner,
                                     size_t sram,
                                     const std::vector<std::string>& sites,
                                     const std::vector<ParameterNames>& parameters,
                                     bool ranges,
                                     uint32_t order) {
        return std::make_unique<GridKernel>(
            std::move(name),
            function,
            cost,
            std::move(owner),
            sram,
            sites,
            parameters,
            ranges,
            order);
      }));
}

} // namespace accel::python
