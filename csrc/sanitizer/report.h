// What a race looks like to the user.
#pragma once

#include <string>
#include <vector>

#include "../driver/accel.h"
#include "origin.h"
#include "shadow.h"

namespace accel::sanitizer {

// One of the two accesses.
struct Party {
  Access access;
  accelStream_t stream = nullptr; // null: the host itself
  bool captured = false; // its origin is where a graph captured it
};

enum class Remedy { kWaitStream, kRecordStream, kSynchronize };

struct Race {
  Party first;
  Party second;
  Remedy remedy = Remedy::kWaitStream;
  uintptr_t block = 0; // where the memory lies, 0 if unknown
  uint64_t block_bytes = 0;
  std::string tensor; // shape and dtype of the second access, where they are known
};

struct Told {
  std::string name; // of the operator
  std::string stream; // "host" for the host
  std::string access; // "read" or "write"
  std::string backward; // the autograd node that asked, or ""
  std::vector<Frame> stack; // the innermost last
};

struct Report {
  std::string text;
  std::string remedy; // wait_stream, record_stream or synchronize
  Told first;
  Told second;
  uintptr_t address = 0; // of the second access
  uint64_t bytes = 0;
  uint64_t storage = 0;
};

// Takes the GIL: called with nothing locked.
Report make_report(const Race& race);

// A UserWarning of that text alone.
void warn(const std::string& text);

} // namespace accel::sanitizer
