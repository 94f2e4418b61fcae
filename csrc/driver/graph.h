// Graphs: captured nodes, and their launch as one record.
#pragma once

#include <memory>

#include "capture.h"

struct accelGraph {
  std::shared_ptr<const accel::driver::Nodes> nodes;
};
