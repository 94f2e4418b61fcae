// Who asked for an access: the Python stack, or what autograd was doing.
#pragma once

#include <torch/csrc/profiler/combined_traceback.h>

#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

namespace accel::sanitizer {

using Stack = std::shared_ptr<torch::CapturedTraceback>;

struct Origin {
  Stack stack; // of the calling thread; may be empty
  const std::type_info* node = nullptr; // the autograd node whose backward asked
  Stack forward; // where that node was made, if it is still known
};

struct Frame {
  std::string file;
  std::string function;
  uint64_t line = 0;
};

// Takes the GIL for a moment: called with nothing locked.
std::shared_ptr<const Origin> origin_of_this_call();
// The frames outside of torch, this package and pytest, the innermost last; all of them if that
// leaves none. Takes the GIL.
std::vector<Frame> frames_of(const Origin* origin);
// "MulBackward0", or "" where no backward asked.
std::string backward_of(const Origin* origin);

} // namespace accel::sanitizer
