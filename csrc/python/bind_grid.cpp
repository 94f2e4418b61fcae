// Compiled kernels of the Python package, and the way to launches that Triton has prepared before.
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../runtime/stream.h"
#include "grid_kernel.h"

namespace accel::python {

namespace {

// Names of attributes that are asked for at each launch, made once.
struct Names {
  static PyObject* make(const char* text) {
    return PyUnicode_InternFromString(text);
  }
  PyObject* const base = make("base");
  PyObject* const block_shape = make("block_shape");
  PyObject* const calls = make("calls");
  PyObject* const debug = make("debug");
  PyObject* const enter = make("launch_enter_hook");
  PyObject* const exit = make("launch_exit_hook");
  PyObject* const globals = make("used_global_vals");
  PyObject* const hash = make("hash");
  PyObject* const inspection = make("add_stages_inspection_hook");
  PyObject* const pre_run_hooks = make("pre_run_hooks");

  static const Names& all() {
    static const auto& names = *new Names();
    return names;
  }
};

py::object get(py::handle object, PyObject* name) {
  PyObject* const value = PyObject_GetAttr(object.ptr(), name);
  if (value == nullptr) {
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::object>(value);
}

// The launches of one @triton.jit function by what Triton specialises a kernel on, or finer: types,
// alignments, sizes of numbers, values of constants, options, device. Where the key cannot say it
// all, there is no key, and the launch goes Triton's way.
class LaunchCache {
 public:
  // `names`, whether it is a constexpr, and default (or `missing`) of each parameter; the class of
  // tensor descriptors.
  LaunchCache(
      std::vector<py::str> names,
      std::vector<bool> constant,
      std::vector<py::object> defaults,
      py::object missing,
      py::object descriptor,
      py::object knobs,
      py::object prepare)
      : names_(std::move(names)),
        constant_(std::move(constant)),
        defaults_(std::move(defaults)),
        missing_(std::move(missing)),
        descriptor_(std::move(descriptor)),
        knobs_(std::move(knobs)),
        prepare_(std::move(prepare)) {
    for (auto& name : names_) {
      PyUnicode_InternInPlace(&name.ptr());
    }
  }

  py::object
  launch(py::handle function, py::handle grid, const py::args& args, const py::kwargs& kwargs) {
    Values values(names_.size(), nullptr);
    std::string key;
    key.reserve(128);
    const bool known = bind(args, kwargs, values, key) && describe(function, key);
    const auto place = known ? size_of(grid, values) : std::nullopt;
    if (place) {
      if (const auto found = launches_.find(key); found != launches_.end()) {
        const py::object compiled = found->second.compiled();
        if (!compiled.is_none()) {
          const py::object owner = found->second.owner; // others may launch meanwhile
          const auto* const kernel = found->second.kernel;
          kernel->launch(
              *place,
              native(current_stream()),
              found->second.cooperative,
              values.data(),
              values.size());
          return compiled;
        }
      }
    }
    // Triton's way, which gives what it launched and, where that can be launched again from here,
    // the kernel and whether it is cooperative.
    const py::tuple made = prepare_(function, grid, args, kwargs);
    if (place && !made[1].is_none()) {
      launches_.insert_or_assign(
          std::move(key),
          Launch{
              py::weakref(made[0]),
              made[1],
              py::cast<const GridKernel*>(made[1]),
              py::cast<bool>(made[2])});
    }
    return made[0];
  }

 private:
  using Values = std::vector<PyObject*>;

  struct Launch {
    py::weakref compiled; // its source refers to the function, which has this cache
    py::object owner;
    const GridKernel* kernel;
    bool cooperative;
  };

  // Every argument in its parameter's place; the options go into the key.
  bool bind(const py::args& args, const py::kwargs& kwargs, Values& values, std::string& key)
      const {
    if (args.size() > names_.size()) {
      return false;
    }
    for (size_t i = 0; i < args.size(); ++i) {
      values[i] = PyTuple_GET_ITEM(args.ptr(), static_cast<Py_ssize_t>(i));
    }
    PyObject* name = nullptr;
    PyObject* value = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(kwargs.ptr(), &at, &name, &value) != 0;) {
      const auto parameter = std::find_if(names_.begin(), names_.end(), [&](const py::str& known) {
        return known.ptr() == name || PyUnicode_Compare(known.ptr(), name) == 0;
      });
      if (parameter == names_.end()) {
        append_constant(name, key);
        if (!append_constant(value, key)) {
          return false;
        }
        continue;
      }
      auto& place = values[static_cast<size_t>(parameter - names_.begin())];
      if (place != nullptr) {
        return false; // Python says so
      }
      place = value;
    }
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = values[i] != nullptr ? values[i] : defaults_[i].ptr();
      if (values[i] == missing_.ptr() ||
          !(constant_[i] ? append_constant(values[i], key) : append_argument(values[i], key))) {
        return false;
      }
    }
    return true;
  }

  template <class T>
  static void append(char tag, T value, std::string& key) {
    key.push_back(tag);
    key.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }

  // By value and type.
  static bool append_constant(PyObject* value, std::string& key) {
    if (value == Py_None || PyBool_Check(value)) {
      key.push_back(value == Py_None ? 'n' : value == Py_True ? 't' : 'f');
    } else if (PyLong_CheckExact(value)) {
      int overflow = 0;
      append('i', PyLong_AsLongLongAndOverflow(value, &overflow), key);
      return overflow == 0;
    } else if (PyFloat_CheckExact(value)) {
      append('d', PyFloat_AS_DOUBLE(value), key);
    } else if (PyUnicode_CheckExact(value)) {
      Py_ssize_t length = 0;
      const char* const text = PyUnicode_AsUTF8AndSize(value, &length);
      if (text == nullptr) {
        PyErr_Clear();
        return false;
      }
      append('s', length, key);
      key.append(text, static_cast<size_t>(length));
    } else {
      return false;
    }
    return true;
  }

  // By what Triton asks of an argument: a number's size and whether it is 1 or a multiple of 16, a
  // tensor's dtype and alignment, a descriptor's dtype and block.
  bool append_argument(PyObject* value, std::string& key) const {
    if (PyLong_CheckExact(value)) {
      int overflow = 0;
      const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
      const int size = number >= INT32_MIN && number <= INT32_MAX ? 0 : 1;
      append('I', number == 1 ? 3 : 4 + 2 * size + (number % 16 == 0 ? 1 : 0), key);
      return overflow == 0;
    }
    if (THPVariable_Check(value)) {
      const auto& tensor = THPVariable_Unpack(value);
      if (!tensor.is_privateuseone()) {
        return false; // Triton's way says what is wrong
      }
      const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
      append('T', static_cast<int>(tensor.scalar_type()) * 2 + (address % 16 == 0 ? 1 : 0), key);
      return true;
    }
    if (PyFloat_CheckExact(value)) {
      key.push_back('F');
      return true;
    }
    if (py::type::handle_of(value).is(descriptor_)) {
      return append_descriptor(value, key);
    }
    return append_constant(value, key); // bool and None; the rest of it finds no harm
  }

  static bool append_descriptor(py::handle value, std::string& key) {
    const auto& names = Names::all();
    const py::object base = get(value, names.base);
    const py::object block = get(value, names.block_shape);
    if (!THPVariable_Check(base.ptr()) || !PyList_Check(block.ptr())) {
      return false;
    }
    append('D', static_cast<int>(THPVariable_Unpack(base.ptr()).scalar_type()), key);
    append('l', PyList_GET_SIZE(block.ptr()), key);
    for (const auto size : py::reinterpret_borrow<py::list>(block)) {
      if (!append_constant(size.ptr(), key)) {
        return false;
      }
    }
    return true;
  }

  // The state of Triton and of the function that a kernel depends on. False where somebody watches
  // launches or changes them.
  bool describe(py::handle function, std::string& key) const {
    const auto& names = Names::all();
    if (!is_idle(get(knobs_, names.enter), names.calls) ||
        !is_idle(get(knobs_, names.exit), names.calls) ||
        !get(knobs_, names.inspection).is_none() ||
        PyObject_IsTrue(get(function, names.pre_run_hooks).ptr()) != 0) {
      return false;
    }
    const py::object globals = get(function, names.globals);
    if (PyDict_Size(globals.ptr()) != 0 && !are_unchanged(globals)) {
      return false;
    }
    const py::object hash = get(function, names.hash); // of the source; None when it has changed
    if (hash.is_none()) {
      return false;
    }
    append('h', PyObject_Hash(hash.ptr()), key);
    append('g', int{current_device()}, key);
    return append_constant(get(knobs_, names.debug).ptr(), key) &&
        append_constant(get(function, names.debug).ptr(), key);
  }

  // By name, where they were and what they were when the kernel was compiled.
  static bool are_unchanged(const py::dict& globals) {
    for (const auto& [name, known] : globals) {
      const auto pair = py::reinterpret_borrow<py::tuple>(known);
      const py::object variable = py::reinterpret_borrow<py::tuple>(name)[0];
      PyObject* const now = PyDict_GetItem(py::object(pair[1]).ptr(), variable.ptr());
      if (now == nullptr || PyObject_RichCompareBool(now, py::object(pair[0]).ptr(), Py_EQ) != 1) {
        PyErr_Clear();
        return false;
      }
    }
    return true;
  }

  // No hook, or a chain of none.
  static bool is_idle(const py::object& hooks, PyObject* calls) {
    if (hooks.is_none()) {
      return true;
    }
    const auto chain = py::reinterpret_steal<py::object>(PyObject_GetAttr(hooks.ptr(), calls));
    if (!chain) {
      PyErr_Clear(); // one hook, as it is
      return false;
    }
    return PyObject_IsTrue(chain.ptr()) == 0;
  }

  // One to three numbers, or a function that makes them of the arguments by name.
  std::optional<std::array<int64_t, 3>> size_of(py::handle grid, const Values& values) const {
    if (!PyTuple_Check(grid.ptr()) && !PyList_Check(grid.ptr())) {
      if (PyCallable_Check(grid.ptr()) == 0) {
        return std::nullopt;
      }
      py::dict named;
      for (size_t i = 0; i < names_.size(); ++i) {
        named[names_[i]] = py::reinterpret_borrow<py::object>(values[i]);
      }
      const py::object made = grid(named);
      return PyCallable_Check(made.ptr()) != 0 ? std::nullopt : size_of(made, values);
    }
    std::array<int64_t, 3> size{1, 1, 1};
    const auto count = static_cast<size_t>(PySequence_Fast_GET_SIZE(grid.ptr()));
    if (count == 0 || count > size.size()) {
      return std::nullopt;
    }
    for (size_t i = 0; i < count; ++i) {
      PyObject* const number = PySequence_Fast_GET_ITEM(grid.ptr(), static_cast<Py_ssize_t>(i));
      if (!PyLong_Check(number)) {
        return std::nullopt;
      }
      size[i] = PyLong_AsLongLong(number);
      if (PyErr_Occurred() != nullptr) {
        throw py::error_already_set();
      }
    }
    return size;
  }

  std::vector<py::str> names_;
  const std::vector<bool> constant_;
  const std::vector<py::object> defaults_;
  const py::object missing_;
  const py::object descriptor_;
  const py::object knobs_;
  const py::object prepare_;
  std::unordered_map<std::string, Launch> launches_;
};

} // namespace

void bind_grid(py::module_& m) {
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
  py::class_<LaunchCache>(m, "_LaunchCache", py::module_local())
      .def(
          py::init<
              std::vector<py::str>,
              std::vector<bool>,
              std::vector<py::object>,
              py::object,
              py::object,
              py::object,
              py::object>())
      .def("launch", torch::wrap_pybind_function(&LaunchCache::launch));
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
