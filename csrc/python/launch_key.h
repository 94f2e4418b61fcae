// What a launch is found by, and what it was called with.
#pragma once

#include <c10/util/SmallVector.h>

#include <functional>
#include <string_view>

#include "bindings.h"

namespace accel::python {

// What a launch was called with, as PEP 590 hands it over.
struct Given {
  PyObject* const* values; // those by position, then those by name
  size_t positional;
  PyObject* names; // a tuple, or null

  size_t named() const {
    return names == nullptr ? 0 : static_cast<size_t>(PyTuple_GET_SIZE(names));
  }
  PyObject* name(size_t i) const {
    return PyTuple_GET_ITEM(names, static_cast<Py_ssize_t>(i));
  }
  py::tuple as_tuple() const {
    py::tuple result(positional);
    for (size_t i = 0; i < positional; ++i) {
      result[i] = py::reinterpret_borrow<py::object>(values[i]);
    }
    return result;
  }
  py::dict as_dict() const {
    py::dict result;
    for (size_t i = 0; i < named(); ++i) {
      result[py::handle(name(i))] = py::handle(values[positional + i]);
    }
    return result;
  }
};

// The bytes that a launch is found by.
class Key {
 public:
  void add(char tag) {
    bytes_.push_back(tag);
  }
  template <class T>
  void add(char tag, T value) {
    bytes_.push_back(tag);
    add(&value, sizeof(value));
  }
  void add(const void* data, size_t size) {
    const auto* const bytes = static_cast<const char*>(data);
    bytes_.append(bytes, bytes + size);
  }
  std::string_view text() const {
    return {bytes_.data(), bytes_.size()};
  }

 private:
  c10::SmallVector<char, 256> bytes_;
};

struct HashOfKey {
  using is_transparent = void;
  size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>{}(text);
  }
};

} // namespace accel::python
