#include "origin.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <c10/util/Type.h>
#include <torch/csrc/autograd/node.h>

#include <algorithm>
#include <array>
#include <mutex>

namespace accel::sanitizer {

namespace {

// Where the newest autograd nodes were made. A forward operator makes its node, numbered per
// thread, and then launches: so the first launch after a number was given out is that node's.
class Forwards {
 public:
  void note(uint64_t thread, uint64_t sequence, const Stack& stack) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto& entry = entry_of(thread, sequence);
    if (entry.stack == nullptr || entry.thread != thread || entry.sequence != sequence) {
      entry = {thread, sequence, stack};
    }
  }
  Stack find(uint64_t thread, uint64_t sequence) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto& entry = entry_of(thread, sequence);
    return entry.thread == thread && entry.sequence == sequence ? entry.stack : nullptr;
  }

 private:
  struct Entry {
    uint64_t thread = 0;
    uint64_t sequence = 0;
    Stack stack;
  };
  static constexpr size_t kEntries = 1
      << 14; // of the newest nodes: an older one has lost its stack

  Entry& entry_of(uint64_t thread, uint64_t sequence) {
    return entries_[(sequence + thread * 7919) % kEntries];
  }

  std::mutex mutex_; // a leaf
  std::array<Entry, kEntries> entries_;
};

Forwards& forwards() {
  static auto* const all = new Forwards(); // leaked: used at exit
  return *all;
}

bool is_internal(const std::string& file) {
  for (const char* part : {"/torch/", "/torch_accel/", "/_pytest/", "/pluggy/"}) {
    if (file.find(part) != std::string::npos) {
      return true;
    }
  }
  return file.starts_with("<frozen");
}

} // namespace

std::shared_ptr<const Origin> origin_of_this_call() {
  auto origin = std::make_shared<Origin>();
  origin->stack =
      torch::CapturedTraceback::gather(/*python=*/true, /*script=*/false, /*cpp=*/false);
  if (const auto node = torch::autograd::get_current_node()) {
    const auto& evaluated = *node;
    origin->node = &typeid(evaluated);
    origin->forward = forwards().find(node->thread_id(), node->sequence_nr());
  } else if (at::GradMode::is_enabled()) {
    const auto given_out = at::sequence_number::peek();
    if (given_out > 0) {
      forwards().note(at::RecordFunction::currentThreadId(), given_out - 1, origin->stack);
    }
  }
  return origin;
}

std::vector<Frame> frames_of(const Origin* origin) {
  if (origin == nullptr) {
    return {};
  }
  std::vector<Frame> kept;
  for (const auto& stack : {origin->stack, origin->forward}) { // a hook in Python counts first
    if (stack == nullptr) {
      continue;
    }
    const auto symbolized = torch::symbolize({stack.get()});
    std::vector<Frame> all;
    for (const auto index : symbolized.tracebacks.at(0)) {
      const auto& frame = symbolized.all_frames[index];
      all.push_back({frame.filename, frame.funcname, frame.lineno});
    }
    std::reverse(all.begin(), all.end());
    kept.clear();
    std::copy_if(all.begin(), all.end(), std::back_inserter(kept), [](const Frame& frame) {
      return !is_internal(frame.file);
    });
    if (kept.empty()) {
      kept = std::move(all);
    }
    if (!kept.empty()) {
      break;
    }
  }
  return kept;
}

std::string backward_of(const Origin* origin) {
  if (origin == nullptr || origin->node == nullptr) {
    return "";
  }
  const auto name = c10::demangle(origin->node->name());
  return name.substr(name.rfind(':') + 1);
}

} // namespace accel::sanitizer
