#include "dry_run.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>
#include <c10/util/hash.h>

#include <unordered_map>
#include <unordered_set>

#include "../runtime/warning.h"

namespace accel {

namespace {

// Above this many elements the run would cost more than it tells.
constexpr int64_t kMaxElements = 4096;

size_t key_of(c10::ArrayRef<Operand> operands, size_t kernel) {
  size_t key = kernel;
  for (const auto& [tensor, access] : operands) {
    const auto dtype = tensor.defined() ? tensor.scalar_type() : c10::ScalarType::Undefined;
    key = c10::hash_combine(key, static_cast<size_t>(dtype));
  }
  return key;
}

bool small(c10::ArrayRef<Operand> operands) {
  int64_t elements = 0;
  for (const auto& [tensor, access] : operands) {
    elements += tensor.defined() ? tensor.numel() : 0;
  }
  return elements <= kMaxElements;
}

using Tensors = c10::SmallVector<at::Tensor, 4>;

// Values that no kernel trips over unchecked: indices (int64) count from 0, pivots (int32) from 1.
// An operand that is an earlier one is the same tensor here.
Tensors dummies(c10::ArrayRef<Operand> operands, DryRunSizes sizes) {
  Tensors result;
  std::unordered_map<c10::TensorImpl*, at::Tensor> known;
  for (const auto& [tensor, access] : operands) {
    if (!tensor.defined()) {
      result.emplace_back();
      continue;
    }
    auto& dummy = known[tensor.unsafeGetTensorImpl()];
    if (!dummy.defined()) {
      const auto options = at::TensorOptions(tensor.scalar_type());
      const bool written = (access & accelAccessWrite) != 0;
      if (sizes == DryRunSizes::kOne) {
        dummy = at::ones(at::DimVector(tensor.dim(), 1), options);
      } else if (written) {
        dummy = at::empty_strided(tensor.sizes(), tensor.strides(), options).zero_();
      } else {
        dummy = at::full(tensor.sizes(), tensor.scalar_type() == at::kInt ? 1 : 0, options);
      }
    }
    result.push_back(dummy);
  }
  return result;
}

} // namespace

void check_dtypes(
    c10::ArrayRef<Operand> operands,
    size_t kernel,
    c10::function_ref<void(at::TensorList dummies)> run,
    DryRunSizes sizes) {
  const auto key = key_of(operands, kernel);
  thread_local std::unordered_set<size_t> known;
  if (known.count(key) != 0 || (sizes == DryRunSizes::kReal && !small(operands))) {
    return;
  }
  const IgnoreWarnings ignore;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  try {
    run(dummies(operands, sizes));
  } catch (const c10::NotImplementedError&) {
    throw;
  } catch (const c10::Error&) {
    // of the values: the worker raises it, if the real ones deserve it
  }
  known.insert(key);
}

} // namespace accel
