// What the files of the module accel_driver share.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>

#include "accel.h"

namespace py = pybind11;

struct DriverError {
  accelError_t code;
  std::string text;
};

inline void check(accelError_t code) {
  if (code != accelSuccess) {
    throw DriverError{code, accelGetLastErrorMessage()};
  }
}

inline void* pointer(uintptr_t address) {
  return reinterpret_cast<void*>(address);
}

template <class T>
T sized() {
  T value{};
  value.size = sizeof(T);
  return value;
}

struct Stream {
  accelStream_t handle = nullptr;
};

// A launch info of which nothing but the name is known.
accelLaunchInfo unknown_info(const char* name);

void bind_grid(py::module_& m);
