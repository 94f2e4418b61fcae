// Device and pinned memory, and the generators.
#include <c10/util/Logging.h>

#include <memory>
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

// A holder of a private pool. Its memory goes back to the chip with the last holder.
class MemPool {
 public:
  MemPool(int64_t index, bool use_on_oom, bool no_split)
      : index_(checked_index(to_index(index))), id_(new_pool_id()) {
    retain_pool(index_, id_);
    set_pool_options(index_, id_, use_on_oom, no_split);
  }
  MemPool(const MemPool&) = delete;
  MemPool& operator=(const MemPool&) = delete;
  ~MemPool() {
    if (in_bad_fork()) {
      return;
    }
    try {
      release_pool(index_, id_);
      device_allocator()->emptyCache(id_);
    } catch (const std::exception& error) {
      LOG(ERROR) << "accel: releasing a memory pool failed: " << error.what();
    }
  }

  c10::MempoolId_t id() const {
    return id_;
  }
  int use_count() const {
    return pool_use_count(index_, id_);
  }

 private:
  const c10::DeviceIndex index_;
  const c10::MempoolId_t id_;
};

void caching_allocator_delete(uintptr_t address) {
  accelPointerAttributes attributes{};
  attributes.size = sizeof(attributes);
  auto* const ptr = reinterpret_cast<void*>(address);
  TORCH_CHECK(
      ptr == nullptr ||
          (is_initialized() && accelPointerGetAttributes(ptr, &attributes) == accelSuccess &&
           attributes.kind == accelMemoryDevice && attributes.block == ptr &&
           attributes.block_live),
      "invalid device pointer: ",
      ptr);
  free_block(ptr);
}

py::dict as_dict(const c10::CachingAllocator::Stat& stat) {
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

// By pool id, as in torch.cuda.memory_stats_as_nested_dict: what torch.accelerator's dictionary of
// statistics leaves out.
py::dict reserved_by_private_pools(int64_t index) {
  const auto stats = [&] {
    py::gil_scoped_release no_gil;
    return device_allocator()->getDeviceStats(to_index(index));
  }();
  py::dict pools;
  for (const auto& [id, array] : stats.reserved_bytes_by_private_pools) {
    py::dict kinds;
    kinds["all"] = as_dict(array[0]);
    kinds["small_pool"] = as_dict(array[1]);
    kinds["large_pool"] = as_dict(array[2]);
    pools[py::cast(id)] = kinds;
  }
  return pools;
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
  m.def(
      "_reserved_bytes_by_private_pools", torch::wrap_pybind_function(&reserved_by_private_pools));
  m.def("_host_memory_stats", torch::wrap_pybind_function(&host_memory_stats));
  def(m, "_reset_accumulated_host_memory_stats", [] {
    host_allocator()->reset_accumulated_stats();
  });
  def(m, "_reset_peak_host_memory_stats", [] { host_allocator()->reset_peak_stats(); });
  py::class_<MemPool>(m, "_MemPool", py::module_local())
      .def(py::init(torch::wrap_pybind_function([](int64_t index, bool use_on_oom, bool no_split) {
        return std::make_unique<MemPool>(index, use_on_oom, no_split);
      })))
      .def_property_readonly("id", &MemPool::id)
      .def("use_count", &MemPool::use_count);
  def(m, "_begin_allocate_current_thread_to_pool", [](int64_t index, c10::MempoolId_t id) {
    begin_allocate_this_thread_to_pool(to_index(index), id);
  });
  def(m, "_begin_allocate_current_stream_to_pool", [](int64_t index, c10::MempoolId_t id) {
    auto* const current = native(current_stream(to_index(index)));
    begin_allocate_to_pool(
        to_index(index), id, [current](accelStream_t stream) { return stream == current; });
  });
  def(m, "_end_allocate_to_pool", [](int64_t index, c10::MempoolId_t id) {
    end_allocate_to_pool(to_index(index), id);
  });
  def(m, "_release_pool", [](int64_t index, c10::MempoolId_t id) {
    release_pool(to_index(index), id);
  });
  def(m, "_pool_use_count", [](int64_t index, c10::MempoolId_t id) {
    return pool_use_count(to_index(index), id);
  });
  def(m, "_set_memory_fraction", [](int64_t index, double fraction) {
    set_memory_fraction(to_index(index), fraction);
  });
  def(m, "_get_memory_fraction", [](int64_t index) { return memory_fraction(to_index(index)); });
  def(m, "_enable_caching", &enable_caching);
  def(m, "_caching_enabled", &caching_enabled);
  def(m, "_caching_allocator_alloc", [](size_t size, const c10::Stream& stream) {
    return reinterpret_cast<uintptr_t>(allocate(size, stream));
  });
  def(m, "_caching_allocator_delete", &caching_allocator_delete);
  def(m, "_default_generator", [](int64_t index) { return default_generator(to_index(index)); });
}

} // namespace accel::python
