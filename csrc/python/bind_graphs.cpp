// Graphs.
#include <utility>

#include "../runtime/allocator.h"
#include "../runtime/graph.h"
#include "bindings.h"

namespace accel::python {

namespace {

at::GraphCaptureMode to_mode(const std::string& name) {
  constexpr std::pair<const char*, at::GraphCaptureMode> kModes[] = {
      {"global", at::GraphCaptureMode::Global},
      {"thread_local", at::GraphCaptureMode::ThreadLocal},
      {"relaxed", at::GraphCaptureMode::Relaxed}};
  for (const auto& [known, mode] : kModes) {
    if (name == known) {
      return mode;
    }
  }
  TORCH_CHECK(
      false,
      "Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got ",
      name);
}

template <class... Arguments>
auto without_gil(void (Graph::*method)(Arguments...)) {
  return torch::wrap_pybind_function_no_gil(
      [method](Graph& graph, Arguments... arguments) { (graph.*method)(arguments...); });
}

} // namespace

void bind_graphs(py::module_& m) {
  py::class_<GraphNode>(m, "_AccelGraphNode", py::module_local())
      .def_readonly("name", &GraphNode::name)
      .def_property_readonly(
          "engine", [](const GraphNode& n) { return static_cast<int>(n.engine); })
      .def_readonly("stream", &GraphNode::stream)
      .def_readonly("dependencies", &GraphNode::dependencies);

  py::class_<Graph>(m, "_AccelGraph", py::module_local())
      .def(
          py::init([](bool keep_graph) {
            return std::make_unique<Graph>(at::GraphImplArgs{keep_graph});
          }),
          py::arg("keep_graph") = false)
      .def(
          "capture_begin",
          torch::wrap_pybind_function_no_gil(
              [](Graph& self, std::optional<c10::MempoolId_t> pool, const std::string& mode) {
                self.capture_begin(pool.value_or(kGeneralPool), to_mode(mode));
              }),
          py::arg("pool") = std::nullopt,
          py::arg("capture_error_mode") = "global")
      .def("capture_end", without_gil(&Graph::capture_end))
      .def("instantiate", without_gil(&Graph::instantiate))
      .def("replay", without_gil(&Graph::replay))
      .def("reset", without_gil(&Graph::reset))
      .def("pool", torch::wrap_pybind_function(&Graph::pool))
      .def("enable_debug_mode", without_gil(&Graph::enable_debug_mode))
      .def("debug_dump", without_gil(&Graph::debug_dump), py::arg("debug_path"))
      .def(
          "register_generator_state",
          without_gil(&Graph::register_generator_state),
          py::arg("generator"))
      .def("_nodes", torch::wrap_pybind_function_no_gil(&Graph::nodes));

  def(m, "_graph_pool_handle", [] { return new_pool_id(); });
  def(m, "_is_current_stream_capturing", [] {
    return is_initialized() && !in_bad_fork() && capture_id(current_stream()) != 0;
  });
  def(m, "_forbid_in_capture", [](const std::string& call) {
    forbid_in_capture(current_stream(), call.c_str());
  });
}

} // namespace accel::python
