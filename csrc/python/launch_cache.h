// The short way to launches that Triton has prepared before.
#pragma once

#include "bindings.h"

namespace accel::python {

// Adds `_make_launch_cache` and `_make_getitem`; torch_accel/triton/backend/shortcut.py uses them.
void bind_launch_cache(py::module_& m);

} // namespace accel::python
