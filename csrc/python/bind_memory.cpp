// Device and pinned memory, and the generators.
#include <optional>

#include "../driver/accel.h"
#include "../runtime/allocator.h"
#include "../runtime/device.h"
#include "../runtime/error.h"
#include "../runtime/generator.h"
#include "../runtime/host_allocator.h"
#include "bindings.h"

namespace accel::python {

namespace {

// The ticket rule's host half, as a context manager of one thread.
struct ExecuteNowContext {
  std::optional<ExecuteNow> scope;
};

std::pair<uintptr_t, size_t> arena(int64_t index) {
  lazy_init();
  void* host = nullptr;
  size_t bytes = 0;
  check(accelGetArena(checked_index(to_index(index)), &host, &bytes));
  return {reinterpret_cast<uintptr_t>(host), bytes};
}

py::dict as_dict(const at::Stat& stat) {
  py::dict d;
  d["current"] = stat.current;
  d["peak"] = stat.peak;
  d["allocated"] = stat.allocated;
  d["freed"] = stat.freed;
  return d;
}

py::dict as_dict(const at::DurationStat& stat) {
  py::dict d;
  d["total"] = stat.total;
  d["max"] = stat.max;
  d["min"] = stat.min;
  d["count"] = stat.count;
  d["avg"] = stat.count == 0 ? 0 : stat.total / stat.count;
  return d;
}

// Keys as in torch.cuda.host_memory_stats_as_nested_dict.
py::dict host_memory_stats() {
  const auto stats = [] {
    py::gil_scoped_release no_gil;
    return host_allocator()->get_stats();
  }();
  py::dict d;
  d["num_host_alloc"] = stats.num_host_alloc;
  d["num_host_free"] = stats.num_host_free;
  d["allocations"] = as_dict(stats.allocations);
  d["allocated_bytes"] = as_dict(stats.allocated_bytes);
  d["active_requests"] = as_dict(stats.active_requests);
  d["active_bytes"] = as_dict(stats.active_bytes);
  d["host_alloc_time"] = as_dict(stats.host_alloc_time);
  d["host_free_time"] = as_dict(stats.host_free_time);
  return d;
}

} // namespace

void bind_memory(py::module_& m) {
  py::class_<ExecuteNowContext>(m, "_ExecuteNow", py::module_local())
      .def(py::init<>())
      .def("__enter__", [](ExecuteNowContext& self) { self.scope.emplace(); })
      .def("__exit__", [](ExecuteNowContext& self, const py::args&) { self.scope.reset(); });

  def(m, "_arena", &arena);
  def(m, "_host_address", [](uintptr_t address) {
    return reinterpret_cast<uintptr_t>(host_address(reinterpret_cast<const void*>(address)));
  });
  m.def("_host_memory_stats", torch::wrap_pybind_function(&host_memory_stats));
  def(m, "_reset_accumulated_host_memory_stats", [] {
    host_allocator()->reset_accumulated_stats();
  });
  def(m, "_reset_peak_host_memory_stats", [] { host_allocator()->reset_peak_stats(); });
  def(m, "_default_generator", [](int64_t index) { return default_generator(to_index(index)); });
}

} // namespace accel::python
