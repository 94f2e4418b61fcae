// The stream sanitizer, its clocks for tests, and memory that nothing has written.
#include <string>
#include <vector>

#include "../sanitizer/clock.h"
#include "../sanitizer/sanitizer.h"
#include "../sanitizer/shadow.h"
#include "../sanitizer/unwritten.h"
#include "bindings.h"

namespace accel::python {

namespace {

using namespace accel::sanitizer;

constexpr const char* kModes[] = {"off", "raise", "warn"};

void set_mode(const std::string& name) {
  for (size_t i = 0; i < std::size(kModes); ++i) {
    if (name == kModes[i]) {
      enable(static_cast<Mode>(i));
      return;
    }
  }
  TORCH_CHECK_VALUE(
      false, "accel: the sanitizer's mode must be one of raise, warn, off, got '", name, "'");
}

void bind_reports(py::module_& m) {
  py::class_<Frame>(m, "_SanitizerFrame", py::module_local())
      .def_readonly("file", &Frame::file)
      .def_readonly("function", &Frame::function)
      .def_readonly("line", &Frame::line);
  py::class_<Told>(m, "_SanitizerAccess", py::module_local())
      .def_readonly("name", &Told::name)
      .def_readonly("stream", &Told::stream)
      .def_readonly("access", &Told::access)
      .def_readonly("backward", &Told::backward)
      .def_readonly("stack", &Told::stack);
  py::class_<Report>(m, "_SanitizerReport", py::module_local())
      .def_readonly("text", &Report::text)
      .def_readonly("remedy", &Report::remedy)
      .def_readonly("first", &Report::first)
      .def_readonly("second", &Report::second)
      .def_readonly("address", &Report::address)
      .def_readonly("bytes", &Report::bytes)
      .def_readonly("storage", &Report::storage);
}

// The algebra alone, for its tests.
void bind_clocks(py::module_& m) {
  py::class_<Order>(m, "_SanitizerOrder", py::module_local())
      .def(py::init<>())
      .def("enqueue", &Order::enqueue)
      .def("wait", &Order::wait)
      .def("complete", &Order::complete)
      .def("remembered", &Order::remembered)
      // Whether the next launch on `stream` comes after that ticket.
      .def(
          "ordered",
          [](Order& order, StreamIndex stream, StreamIndex source, uint64_t ticket) {
            return order.next(stream).covers(source, ticket);
          })
      .def("host_knows", [](const Order& order, StreamIndex stream, uint64_t ticket) {
        return order.host().covers(stream, ticket);
      });
  py::class_<Bytes>(m, "_SanitizerBytes", py::module_local())
      .def(
          py::init([](uintptr_t first, uintptr_t last, uint64_t run, uint64_t pitch) {
            return Bytes{first, last, run, pitch};
          }),
          py::arg("first"),
          py::arg("last"),
          py::arg("run") = 0,
          py::arg("pitch") = 0)
      .def("overlaps", &Bytes::overlaps)
      .def("contains", &Bytes::contains);
}

} // namespace

void bind_sanitizer(py::module_& m) {
  bind_reports(m);
  bind_clocks(m);
  def(m, "_sanitizer_set_mode", &set_mode);
  def(m, "_sanitizer_mode", [] { return std::string(kModes[static_cast<int>(mode())]); });
  def(m, "_sanitizer_reports", &reports);
  def(m,
      "_sanitizer_host_access",
      [](const at::Tensor& tensor, const std::string& name, bool write) {
        host_access(tensor, name.c_str(), write);
      });
  def(m, "_track_unwritten", &track_unwritten);
  def(m, "_unwritten", &unwritten);
  def(m, "_wrote_only", &wrote_only);
  def(m, "_sanitizer_stats", [] {
    const auto now = stats();
    return std::vector<size_t>{now.accesses, now.clocks, now.subscribers};
  });
}

} // namespace accel::python
