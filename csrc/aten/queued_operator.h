// The boxed kernel behind the table of shape functions.
#pragma once

#include <ATen/core/boxing/OperatorKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <vector>

#include "shapes.h"

namespace accel {

class PlacementLessons;

class QueuedOperator final : public c10::OperatorKernel {
 public:
  // A declined composite operator runs its composite kernel on the host, unless that kernel would
  // come back here: then `decomposes` is false.
  QueuedOperator(const c10::OperatorHandle& op, const ShapeRow& row, bool decomposes = true);

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack);
  // The same, with arguments that the caller has in hand: replaces them on `stack` by the results.
  void call(torch::jit::Stack* stack) const;

 private:
  bool written(size_t argument, Arguments arguments) const;
  bool unusual(Arguments arguments) const;
  void decompose(torch::jit::Stack* stack) const;
  void count_versions(Arguments arguments) const;
  // Queues the call with these fresh outputs.
  void queue(c10::Device device, Arguments arguments, at::TensorList fresh) const;

  c10::OperatorHandle op_;
  ShapeRow row_;
  bool composite_;
  std::vector<bool> marked_; // by the schema as written, each argument
  std::vector<size_t> out_arguments_; // the out= arguments
  PlacementLessons* lessons_; // leaked: records refer to it
  std::vector<size_t> scalar_arguments_;
  std::vector<int> returns_; // the argument that a result is, or -1 for a fresh one
  bool returns_list_ = false; // of the fresh ones
};

// How often a kernel's result was not where its output was foreseen, so that it was copied there.
int64_t misplaced_results();

// Registers the table's operators. Called once.
void register_queued_operators();

} // namespace accel
