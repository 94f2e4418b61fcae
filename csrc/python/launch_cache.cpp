#include "launch_cache.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../runtime/stream.h"
#include "grid_kernel.h"
#include "launch_key.h"

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
  PyObject* const active = make("_active");
  PyObject* const launches = make("_accel_launches");
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

// None if it is gone.
py::object alive(const py::weakref& reference) {
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* object = nullptr;
  if (PyWeakref_GetRef(reference.ptr(), &object) != 1) {
    PyErr_Clear();
    return py::none();
  }
  return py::reinterpret_steal<py::object>(object);
#else
  return py::reinterpret_borrow<py::object>(PyWeakref_GetObject(reference.ptr()));
#endif
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

  py::object launch(py::handle function, py::handle grid, const Given& given) {
    Values values(names_.size(), nullptr);
    Key key;
    const bool known = bind(given, values, key) && describe(function, key);
    const auto place = known ? size_of(grid, values) : std::nullopt;
    if (place) {
      if (const auto found = launches_.find(key.text()); found != launches_.end()) {
        const py::object compiled = alive(found->second.compiled);
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
    const py::tuple made = prepare_(function, grid, given.as_tuple(), given.as_dict());
    if (place && !made[1].is_none()) {
      launches_.insert_or_assign(
          std::string(key.text()),
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
  bool bind(const Given& given, Values& values, Key& key) const {
    if (given.positional > names_.size()) {
      return false;
    }
    std::copy_n(given.values, given.positional, values.begin());
    for (size_t i = 0; i < given.named(); ++i) {
      PyObject* const name = given.name(i);
      PyObject* const value = given.values[given.positional + i];
      const auto parameter = find(name);
      if (parameter == names_.size()) {
        append_constant(name, key);
        if (!append_constant(value, key)) {
          return false;
        }
        continue;
      }
      if (values[parameter] != nullptr) {
        return false; // Python says so
      }
      values[parameter] = value;
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

  // The number of the parameter with that name; how many there are if it is none's.
  size_t find(PyObject* name) const {
    for (size_t i = 0; i < names_.size(); ++i) {
      if (names_[i].ptr() == name) { // interned, as names in a program's text are
        return i;
      }
    }
    size_t i = 0;
    while (i < names_.size() && PyUnicode_Compare(names_[i].ptr(), name) != 0) {
      ++i;
    }
    return i;
  }

  // By value and type.
  static bool append_constant(PyObject* value, Key& key) {
    if (value == Py_None || PyBool_Check(value)) {
      key.add(value == Py_None ? 'n' : value == Py_True ? 't' : 'f');
    } else if (PyLong_CheckExact(value)) {
      int overflow = 0;
      key.add('i', PyLong_AsLongLongAndOverflow(value, &overflow));
      return overflow == 0;
    } else if (PyFloat_CheckExact(value)) {
      key.add('d', PyFloat_AS_DOUBLE(value));
    } else if (PyUnicode_CheckExact(value)) {
      Py_ssize_t length = 0;
      const char* const text = PyUnicode_AsUTF8AndSize(value, &length);
      if (text == nullptr) {
        PyErr_Clear();
        return false;
      }
      key.add('s', length);
      key.add(text, static_cast<size_t>(length));
    } else {
      return false;
    }
    return true;
  }

  // By what Triton asks of an argument: a number's size and whether it is 1 or a multiple of 16, a
  // tensor's dtype and alignment, a descriptor's dtype and block.
  bool append_argument(PyObject* value, Key& key) const {
    if (PyLong_CheckExact(value)) {
      int overflow = 0;
      const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
      const int size = number >= INT32_MIN && number <= INT32_MAX ? 0 : 1;
      key.add('I', number == 1 ? 3 : 4 + 2 * size + (number % 16 == 0 ? 1 : 0));
      return overflow == 0;
    }
    if (THPVariable_Check(value)) {
      const auto& tensor = THPVariable_Unpack(value);
      if (!tensor.is_privateuseone()) {
        return false; // Triton's way says what is wrong
      }
      const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
      key.add('T', static_cast<int>(tensor.scalar_type()) * 2 + (address % 16 == 0 ? 1 : 0));
      return true;
    }
    if (PyFloat_CheckExact(value)) {
      key.add('F');
      return true;
    }
    if (py::type::handle_of(value).is(descriptor_)) {
      return append_descriptor(value, key);
    }
    return append_constant(value, key); // bool and None; the rest of it finds no harm
  }

  static bool append_descriptor(py::handle value, Key& key) {
    const auto& names = Names::all();
    const py::object base = get(value, names.base);
    const py::object block = get(value, names.block_shape);
    if (!THPVariable_Check(base.ptr()) || !PyList_Check(block.ptr())) {
      return false;
    }
    key.add('D', static_cast<int>(THPVariable_Unpack(base.ptr()).scalar_type()));
    key.add('l', PyList_GET_SIZE(block.ptr()));
    for (const auto size : py::reinterpret_borrow<py::list>(block)) {
      if (!append_constant(size.ptr(), key)) {
        return false;
      }
    }
    return true;
  }

  // The state of Triton and of the function that a kernel depends on. False where somebody watches
  // launches or changes them.
  bool describe(py::handle function, Key& key) const {
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
    key.add('h', PyObject_Hash(hash.ptr()));
    key.add('g', int{current_device()});
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
  std::unordered_map<std::string, Launch, HashOfKey, std::equal_to<>> launches_;
};

// ---- Python's objects, without pybind11's ways in, which take as long as the launch

// A cache, in a @triton.jit function's __dict__.
struct CacheObject {
  PyObject head;
  LaunchCache* cache;
};

// kernel[grid].
struct BoundObject {
  PyObject head;
  vectorcallfunc call;
  PyObject* function;
  PyObject* cache;
  PyObject* grid;
};

PyObject* call_bound(PyObject* self, PyObject* const* args, size_t count, PyObject* names) {
  HANDLE_TH_ERRORS
  const auto* const bound = reinterpret_cast<BoundObject*>(self);
  const Given given{args, static_cast<size_t>(PyVectorcall_NARGS(count)), names};
  auto& cache = *reinterpret_cast<CacheObject*>(bound->cache)->cache;
  return cache.launch(bound->function, bound->grid, given).release().ptr();
  END_HANDLE_TH_ERRORS
}

void free_bound(PyObject* self) {
  auto* const bound = reinterpret_cast<BoundObject*>(self);
  Py_DECREF(bound->function);
  Py_DECREF(bound->cache);
  Py_DECREF(bound->grid);
  Py_TYPE(self)->tp_free(self);
}

void free_cache(PyObject* self) {
  delete reinterpret_cast<CacheObject*>(self)->cache;
  Py_TYPE(self)->tp_free(self);
}

PyTypeObject make_type(const char* name, Py_ssize_t size, destructor free) {
  PyTypeObject type{};
  type.tp_name = name;
  type.tp_basicsize = size;
  type.tp_flags = Py_TPFLAGS_DEFAULT;
  type.tp_dealloc = free;
  return type;
}

PyTypeObject& cache_type() {
  static PyTypeObject type =
      make_type("torch_accel._C._LaunchCache", sizeof(CacheObject), free_cache);
  return type;
}

PyTypeObject& bound_type() {
  static PyTypeObject type = [] {
    auto made = make_type("torch_accel._C._BoundLaunch", sizeof(BoundObject), free_bound);
    made.tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
    made.tp_vectorcall_offset = offsetof(BoundObject, call);
    made.tp_call = PyVectorcall_Call;
    return made;
  }();
  return type;
}

// The cache of a function, made by `make` at its first launch.
PyObject* cache_of(PyObject* function, PyObject* make) {
  PyObject* cache = PyObject_GetAttr(function, Names::all().launches);
  if (cache == nullptr) {
    PyErr_Clear();
    cache = PyObject_CallOneArg(make, function);
  }
  if (cache != nullptr && Py_TYPE(cache) != &cache_type()) {
    PyErr_Format(PyExc_TypeError, "accel: %R is no cache of launches", cache);
    Py_CLEAR(cache);
  }
  return cache;
}

// __getitem__ of functions. `state` is Triton's driver configuration, the class of our driver,
// Triton's own __getitem__, and what makes a function's cache.
PyObject* getitem(PyObject* state, PyObject* const* args, Py_ssize_t count) {
  if (count != 2) {
    PyErr_Format(PyExc_TypeError, "accel: kernel[grid] takes a grid; %zd given", count - 1);
    return nullptr;
  }
  PyObject* const active = PyObject_GetAttr(PyTuple_GET_ITEM(state, 0), Names::all().active);
  if (active == nullptr) {
    return nullptr;
  }
  const int ours = PyObject_IsInstance(active, PyTuple_GET_ITEM(state, 1));
  Py_DECREF(active);
  if (ours <= 0) {
    return ours < 0 ? nullptr
                    : PyObject_Vectorcall(
                          PyTuple_GET_ITEM(state, 2), args, static_cast<size_t>(count), nullptr);
  }
  PyObject* const cache = cache_of(args[0], PyTuple_GET_ITEM(state, 3));
  auto* const bound = cache == nullptr ? nullptr : PyObject_New(BoundObject, &bound_type());
  if (bound == nullptr) {
    Py_XDECREF(cache);
    return nullptr;
  }
  bound->call = call_bound;
  bound->function = Py_NewRef(args[0]);
  bound->cache = cache;
  bound->grid = Py_NewRef(args[1]);
  return reinterpret_cast<PyObject*>(bound);
}

PyMethodDef getitem_method = {
    "__getitem__",
    reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(getitem)),
    METH_FASTCALL,
    "The launches of a kernel over a grid."};

} // namespace

void bind_launch_cache(py::module_& m) {
  for (auto* const type : {&cache_type(), &bound_type()}) {
    if (PyType_Ready(type) != 0) {
      throw py::error_already_set();
    }
  }
  m.def(
      "_make_launch_cache",
      torch::wrap_pybind_function([](std::vector<py::str> names,
                                     std::vector<bool> constant,
                                     std::vector<py::object> defaults,
                                     py::object missing,
                                     py::object descriptor,
                                     py::object knobs,
                                     py::object prepare) {
        auto cache = std::make_unique<LaunchCache>(
            std::move(names),
            std::move(constant),
            std::move(defaults),
            std::move(missing),
            std::move(descriptor),
            std::move(knobs),
            std::move(prepare));
        auto* const object = PyObject_New(CacheObject, &cache_type());
        if (object == nullptr) {
          throw py::error_already_set();
        }
        object->cache = cache.release();
        return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(object));
      }));
  m.def(
      "_make_getitem",
      [](py::object driver, py::object driver_class, py::object usual, py::object make) {
        const py::tuple state = py::make_tuple(driver, driver_class, usual, make);
        const auto function = py::reinterpret_steal<py::object>(
            PyCFunction_NewEx(&getitem_method, state.ptr(), nullptr));
        // Built-in functions of a class get no self; this one does.
        return py::reinterpret_steal<py::object>(PyInstanceMethod_New(function.ptr()));
      });
}

} // namespace accel::python
