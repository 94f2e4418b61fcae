#include "grid_kernel.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <utility>

#include "../aten/access.h"
#include "../aten/host_state.h"
#include "../runtime/device.h"
#include "../runtime/error.h"
#include "../runtime/host_allocator.h"
#include "../runtime/stream.h"

namespace accel::python {

namespace {

// What owns the code of modules that are gone. A worker may drop the last launch, and has no GIL:
// the next load or launch of a thread with the GIL lets go of the owners.
struct Owners {
  std::mutex mutex; // a leaf
  std::vector<PyObject*> left;
  std::atomic<bool> any{false};
};

Owners& owners() {
  static auto* const owners = new Owners();
  return *owners;
}

void leave_owner(void* owner) {
  const std::lock_guard lock(owners().mutex);
  owners().left.push_back(static_cast<PyObject*>(owner));
  owners().any.store(true);
}

void drop_owners() {
  if (!owners().any.load(std::memory_order_relaxed)) {
    return;
  }
  std::vector<PyObject*> left;
  {
    const std::lock_guard lock(owners().mutex);
    left.swap(owners().left);
    owners().any.store(false);
  }
  for (auto* const owner : left) {
    Py_DECREF(owner);
  }
}

const std::vector<std::tuple<const char*, Parameter::Kind, uint8_t>>& scalar_types() {
  using Kind = Parameter::Kind;
  static const std::vector<std::tuple<const char*, Kind, uint8_t>> types = {
      {"i1", Kind::kBool, 1},
      {"u1", Kind::kBool, 1},
      {"i8", Kind::kInteger, 1},
      {"u8", Kind::kInteger, 1},
      {"i16", Kind::kInteger, 2},
      {"u16", Kind::kInteger, 2},
      {"i32", Kind::kInteger, 4},
      {"u32", Kind::kInteger, 4},
      {"i64", Kind::kInteger, 8},
      {"u64", Kind::kInteger, 8},
      {"fp16", Kind::kFloat, 2},
      {"bf16", Kind::kFloat, 2},
      {"fp32", Kind::kFloat, 4},
      {"fp64", Kind::kFloat, 8},
  };
  return types;
}

// Of "tensordesc<fp32[4, 8]>", 2; 0 for other types.
uint8_t rank_of_descriptor(const std::string& type) {
  const auto end = type.find(']');
  if (type.rfind("tensordesc<", 0) != 0 || end == std::string::npos) {
    return 0;
  }
  return static_cast<uint8_t>(1 + std::count(type.begin(), type.begin() + end, ','));
}

Parameter make_parameter(const std::string& name, const std::string& type, uint32_t access) {
  Parameter result{name, type, access};
  if (type == "constexpr") {
    return result;
  }
  if ((result.rank = rank_of_descriptor(type)) != 0) {
    result.kind = Parameter::Kind::kDescriptor;
    return result;
  }
  if (!type.empty() && type[0] == '*') {
    result.kind = Parameter::Kind::kPointer;
    result.bytes = sizeof(uintptr_t);
    return result;
  }
  for (const auto& [known, kind, bytes] : scalar_types()) {
    if (type == known) {
      result.kind = kind;
      result.bytes = bytes;
      return result;
    }
  }
  TORCH_CHECK_TYPE(false, "accel: parameter '", name, "' has the unknown type '", type, "'");
}

constexpr size_t align(size_t offset, size_t bytes) {
  return (offset + bytes - 1) / bytes * bytes;
}

// Where a parameter's last byte ends whose first one may come at `offset`.
size_t end_of(const Parameter& parameter, size_t offset) {
  if (parameter.kind == Parameter::Kind::kDescriptor) {
    const size_t rank = parameter.rank;
    offset = align(offset, 8) + 8 + 2 * rank * 8 + 2; // address, shape and strides, two flags
    offset = align(offset, 4) + rank * 4; // the shape again
    return align(offset, 8) + rank * 8; // and the strides
  }
  return parameter.bytes == 0 ? offset : align(offset, parameter.bytes) + parameter.bytes;
}

// Attributes of a tensor descriptor.
struct DescriptorNames {
  PyObject* const base = PyUnicode_InternFromString("base");
  PyObject* const padding = PyUnicode_InternFromString("padding");
  PyObject* const rounds = PyUnicode_InternFromString("round_f32_to_tf32");
  PyObject* const shape = PyUnicode_InternFromString("shape");
  PyObject* const strides = PyUnicode_InternFromString("strides");
};

// Null, with no error set, where there is no such attribute.
py::object get(py::handle object, PyObject* name) {
  auto value = py::reinterpret_steal<py::object>(PyObject_GetAttr(object.ptr(), name));
  PyErr_Clear();
  return value;
}

using Sizes = c10::SmallVector<int64_t, 5>;

// False if `value` is no sequence of `rank` numbers.
bool read_sizes(py::handle value, size_t rank, Sizes& sizes) {
  const auto fast = py::reinterpret_steal<py::object>(PySequence_Fast(value.ptr(), ""));
  if (!fast || static_cast<size_t>(PySequence_Fast_GET_SIZE(fast.ptr())) != rank) {
    PyErr_Clear();
    return false;
  }
  for (size_t i = 0; i < rank; ++i) {
    PyObject* const item = PySequence_Fast_GET_ITEM(fast.ptr(), static_cast<Py_ssize_t>(i));
    sizes.push_back(PyLong_AsLongLong(item));
    if (PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      return false;
    }
  }
  return true;
}

} // namespace

GridKernel::GridKernel(
    std::string name,
    uintptr_t function,
    uintptr_t cost,
    py::object owner,
    size_t sram,
    const std::vector<std::string>& sites,
    const std::vector<ParameterNames>& parameters,
    bool ranges,
    uint32_t order)
    : name_(std::move(name)),
      cost_(reinterpret_cast<CostFunction>(cost)),
      ranges_(ranges),
      order_(order) {
  for (const auto& [parameter, type, access] : parameters) {
    parameters_.push_back(make_parameter(parameter, type, access));
    args_bytes_ = end_of(parameters_.back(), args_bytes_);
    if (parameters_.back().kind != Parameter::Kind::kNone) {
      ++passed_;
      least_ = parameters_.size();
    }
  }
  if (ranges_) {
    const auto pointers = std::count_if(parameters_.begin(), parameters_.end(), [](const auto& p) {
      return p.kind == Parameter::Kind::kPointer || p.kind == Parameter::Kind::kDescriptor;
    });
    args_bytes_ = align(args_bytes_, alignof(Range)) + pointers * sizeof(Range);
  }
  std::vector<const char*> texts;
  for (const auto& site : sites) {
    texts.push_back(site.c_str());
  }
  lazy_init();
  drop_owners();
  accelModuleInfo info{};
  info.size = sizeof(info);
  info.name = name_.c_str();
  info.function = reinterpret_cast<accelGridFunction>(function);
  info.args_bytes = args_bytes_;
  info.sram = sram;
  info.sites = texts.data();
  info.num_sites = static_cast<uint32_t>(texts.size());
  info.release = leave_owner;
  info.user = owner.ptr();
  check(accelModuleLoad(&info, &module_));
  owner.release(); // the module's now
}

GridKernel::~GridKernel() {
  accelModuleUnload(module_);
  drop_owners();
}

void GridKernel::launch(
    const std::array<int64_t, 3>& grid,
    accelStream_t stream,
    bool cooperative,
    PyObject* const* args,
    size_t count) const {
  drop_owners();
  check_count(count);
  Packed packed;
  packed.bytes.resize(args_bytes_);
  packed.device = accelStreamGetDevice(stream);
  const bool with_constants = count >= least_;
  size_t next = 0;
  for (const auto& parameter : parameters_) {
    if (parameter.kind != Parameter::Kind::kNone) {
      pack(parameter, args[next++], packed);
    } else if (with_constants) {
      ++next;
    }
  }
  if (ranges_) {
    for (const auto& range : packed.ranges) {
      packed.put(range.begin);
      packed.put(range.bytes);
    }
  }
  accelLaunchInfo info{};
  info.size = sizeof(info);
  info.engine = accelEngineCompute;
  info.cores = -1;
  std::fill(std::begin(info.bytes), std::end(info.bytes), -1);
  std::fill(std::begin(info.flops), std::end(info.flops), -1);
  info.accesses = packed.accesses.data();
  info.num_accesses = static_cast<uint32_t>(packed.accesses.size());
  accelGridLaunch launch{};
  launch.size = sizeof(launch);
  for (int i = 0; i < 3; ++i) {
    TORCH_CHECK_VALUE(
        grid[i] >= 0 && grid[i] <= std::numeric_limits<int32_t>::max(),
        "accel: kernel '",
        name_,
        "': the grid (",
        grid[0],
        ", ",
        grid[1],
        ", ",
        grid[2],
        ") has a size that is not in 0 to 2147483647");
    launch.grid[i] = static_cast<uint32_t>(grid[i]);
  }
  launch.cores = static_cast<uint32_t>(HostState::of_this_thread().threads);
  launch.cooperative = cooperative ? 1 : 0;
  launch.order = order_;
  launch.args = packed.bytes.data();
  launch.args_bytes = args_bytes_;
  put_cost(launch, info);
  launch.info = &info;
  const py::gil_scoped_release no_gil;
  check(accelLaunchGrid(stream, module_, &launch, nullptr));
  for (const auto& storage : packed.pinned) {
    const auto& data = storage.data_ptr();
    host_allocator()->record_event(data.get(), data.get_context(), from_native(stream));
  }
}

void GridKernel::check_count(size_t given) const {
  const size_t most = parameters_.size();
  TORCH_CHECK_TYPE(
      given == passed_ || (given >= least_ && given <= most),
      "accel: kernel '",
      name_,
      "' has ",
      most,
      " parameters",
      passed_ == most ? "" : c10::str(", ", passed_, " of which are not constant"),
      "; ",
      given,
      " arguments given");
}

void GridKernel::put_cost(const accelGridLaunch& launch, accelLaunchInfo& info) const {
  if (cost_ == nullptr) {
    return;
  }
  std::array<int64_t, 4 + accelFlopsClasses> record{};
  cost_(launch.args, launch.grid, record.data());
  const auto both = [](int64_t read, int64_t written) {
    return read < 0 || written < 0 ? -1 : read + written;
  };
  info.bytes[accelLevelHbm] = both(record[0], record[1]);
  info.bytes[accelLevelSram] = both(record[2], record[3]);
  std::copy(record.begin() + 4, record.end(), std::begin(info.flops));
}

void GridKernel::pack(const Parameter& parameter, py::handle value, Packed& packed) const {
  switch (parameter.kind) {
    case Parameter::Kind::kNone:
      return;
    case Parameter::Kind::kPointer:
      packed.ranges.emplace_back();
      return packed.put(address(parameter, value, packed));
    case Parameter::Kind::kBool: {
      const int truth = PyObject_IsTrue(value.ptr());
      if (truth < 0) {
        throw py::error_already_set();
      }
      return packed.put(static_cast<uint8_t>(truth));
    }
    case Parameter::Kind::kInteger:
      return put_integer(parameter, value, packed);
    case Parameter::Kind::kFloat:
      return put_float(parameter, value, packed);
    case Parameter::Kind::kDescriptor:
      return put_descriptor(parameter, value, packed);
  }
}

void GridKernel::refuse(const Parameter& parameter, py::handle value, const char* expected) const {
  PyErr_Clear();
  TORCH_CHECK_TYPE(
      false,
      "accel: argument '",
      parameter.name,
      "' of kernel '",
      name_,
      "' is a ",
      Py_TYPE(value.ptr())->tp_name,
      ", expected ",
      expected,
      " (",
      parameter.type,
      ")");
}

void GridKernel::put_integer(const Parameter& parameter, py::handle value, Packed& packed) const {
  // By its low bits: unsigned numbers of the type's width come as Python has them.
  const auto index = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
  if (!index) {
    refuse(parameter, value, "an integer");
  }
  const auto bits = PyLong_AsUnsignedLongLongMask(index.ptr());
  switch (parameter.bytes) {
    case 1:
      return packed.put(static_cast<uint8_t>(bits));
    case 2:
      return packed.put(static_cast<uint16_t>(bits));
    case 4:
      return packed.put(static_cast<uint32_t>(bits));
    default:
      return packed.put(static_cast<uint64_t>(bits));
  }
}

void GridKernel::put_float(const Parameter& parameter, py::handle value, Packed& packed) const {
  const double number = PyFloat_AsDouble(value.ptr());
  if (number == -1.0 && PyErr_Occurred() != nullptr) {
    refuse(parameter, value, "a number");
  }
  if (parameter.bytes == 8) {
    packed.put(number);
  } else if (parameter.bytes == 4) {
    packed.put(static_cast<float>(number));
  } else if (parameter.type == "bf16") {
    packed.put(c10::BFloat16(static_cast<float>(number)).x);
  } else {
    packed.put(c10::Half(static_cast<float>(number)).x);
  }
}

uintptr_t GridKernel::address(const Parameter& parameter, py::handle value, Packed& packed) const {
  if (THPVariable_Check(value.ptr())) {
    return address_of(parameter, THPVariable_Unpack(value.ptr()), packed);
  }
  if (value.is_none()) {
    return 0;
  }
  if (PyLong_Check(value.ptr())) {
    return PyLong_AsUnsignedLongLongMask(value.ptr());
  }
  const auto base = py::getattr(value, "base", py::none()); // of Triton's TensorWrapper
  if (THPVariable_Check(base.ptr())) {
    return address_of(parameter, THPVariable_Unpack(base.ptr()), packed);
  }
  if (!py::hasattr(value, "data_ptr")) {
    refuse(parameter, value, "a tensor");
  }
  return py::cast<uintptr_t>(value.attr("data_ptr")());
}

// As Triton's own passes open a descriptor where there is no hardware for it: address, shape,
// strides, whether to pad with NaN and to round to tf32, and once more shape and strides, for
// `desc.shape`. https://github.com/triton-lang/triton, third_party/nvidia/backend/driver.py.
void GridKernel::put_descriptor(const Parameter& parameter, py::handle value, Packed& packed)
    const {
  static const auto& names = *new DescriptorNames();
  const auto base = get(value, names.base);
  const auto padding = get(value, names.padding);
  const auto rounds = get(value, names.rounds);
  const auto shape = get(value, names.shape);
  const auto strides = get(value, names.strides);
  Sizes sizes;
  Sizes steps;
  if (!base || !THPVariable_Check(base.ptr()) || !padding || !rounds || !shape || !strides ||
      !read_sizes(shape, parameter.rank, sizes) || !read_sizes(strides, parameter.rank, steps)) {
    refuse(parameter, value, "a TensorDescriptor of this rank");
  }
  TORCH_CHECK_VALUE(
      steps.back() == 1, // what its kernels are compiled for
      "accel: argument '",
      parameter.name,
      "' of kernel '",
      name_,
      "' is a descriptor whose last stride is ",
      steps.back(),
      ", expected 1");
  const auto& tensor = THPVariable_Unpack(base.ptr());
  packed.ranges.emplace_back();
  packed.put(place_of(parameter, tensor, packed));
  if (parameter.access != 0) {
    packed.accesses.push_back(access_of(tensor, sizes, steps, parameter.access));
  }
  const auto put_all = [&](const Sizes& numbers, auto type) {
    for (const auto number : numbers) {
      packed.put(static_cast<decltype(type)>(number));
    }
  };
  put_all(sizes, int64_t{});
  put_all(steps, int64_t{});
  const bool nan = PyUnicode_Check(padding.ptr()) != 0 &&
      PyUnicode_CompareWithASCIIString(padding.ptr(), "nan") == 0;
  packed.put(static_cast<uint8_t>(nan));
  packed.put(static_cast<uint8_t>(PyObject_IsTrue(rounds.ptr()) == 1));
  put_all(sizes, int32_t{});
  put_all(steps, int64_t{});
}

uintptr_t
GridKernel::address_of(const Parameter& parameter, const at::Tensor& tensor, Packed& packed) const {
  const auto address = place_of(parameter, tensor, packed);
  if (parameter.access != 0 && tensor.numel() != 0) {
    packed.accesses.push_back(access_of(tensor, parameter.access));
  }
  return address;
}

uintptr_t GridKernel::place_of(const Parameter& parameter, const at::Tensor& tensor, Packed& packed)
    const {
  const auto device = tensor.device();
  const bool written = (parameter.access & accelAccessWrite) != 0;
  const auto& storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
  if (device.is_cpu() && is_pinned_ptr(storage.data())) {
    const auto* const data = written ? tensor.mutable_data_ptr() : tensor.const_data_ptr();
    packed.pinned.push_back(storage);
    packed.ranges.back() = {
        reinterpret_cast<uintptr_t>(device_address(storage.data())), storage.nbytes()};
    return reinterpret_cast<uintptr_t>(device_address(data)); // cores reach it as device memory
  }
  TORCH_CHECK_VALUE(
      device.type() == kDeviceType && device.index() == packed.device,
      "accel: argument '",
      parameter.name,
      "' of kernel '",
      name_,
      "' is a tensor on ",
      device,
      ", and the kernel runs on accel:",
      packed.device,
      "; move it there with .to('accel:",
      packed.device,
      "')");
  const auto* const data = written ? tensor.mutable_data_ptr() : tensor.const_data_ptr();
  packed.ranges.back() = {reinterpret_cast<uintptr_t>(storage.data()), storage.nbytes()};
  return reinterpret_cast<uintptr_t>(data);
}

} // namespace accel::python
