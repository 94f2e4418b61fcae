#include "dry_run.h"

#include <ATen/OpMathType.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>
#include <c10/util/hash.h>

#include <limits>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include "../runtime/warning.h"
#include "scalar_value.h"

namespace accel {

namespace {

// Above this many elements the run would cost more than it tells.
constexpr int64_t kMaxElements = 4096;

size_t key_of(c10::ArrayRef<Operand> operands, size_t kernel) {
  size_t key = kernel;
  for (const auto& [tensor, access] : operands) {
    const auto dtype = tensor.defined() ? tensor.scalar_type() : c10::ScalarType::Undefined;
    key = c10::hash_combine(key, static_cast<size_t>(dtype));
    // Kernels take short cuts there, in which they do not look at the dtype.
    const bool special = tensor.defined() && (tensor.dim() == 0 || tensor.numel() == 0);
    key = c10::hash_combine(key, static_cast<size_t>(special));
  }
  return key;
}

bool fits(const at::Scalar& scalar, at::ScalarType dtype) {
  try {
    check_convertible(scalar, dtype);
  } catch (const c10::Error&) {
    // no dtype of fill_'s
  } catch (const std::runtime_error&) {
    return false;
  }
  return true;
}

// Which scalars are beyond the dtype of which operand; 0: none.
size_t misfits(Scalars scalars, c10::ArrayRef<Operand> operands) {
  size_t key = 0;
  for (size_t i = 0; i < scalars.size(); ++i) {
    if (!scalars[i]) {
      continue;
    }
    const auto& scalar = *scalars[i];
    if (!scalar.isComplex()) {
      const double value = scalar.toDouble();
      if (value >= 0 && value <= std::numeric_limits<int8_t>::max()) {
        continue; // fits all
      }
    }
    for (size_t j = 0; j < operands.size(); ++j) {
      const auto& tensor = operands[j].tensor;
      if (tensor.defined() && !fits(scalar, tensor.scalar_type())) {
        // Kernels of the small floats may convert to what they compute in.
        const bool in_arithmetic = fits(scalar, at::toOpMathType(tensor.scalar_type()));
        key = c10::hash_combine(key, (i * operands.size() + j) * 4 + 1);
        key = c10::hash_combine(key, in_arithmetic + scalar.isComplex() * 2);
      }
    }
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

// Whether a call reads no element at all: then dummies are as good as its operands.
bool reads_nothing(c10::ArrayRef<Operand> operands) {
  bool any = false;
  for (const auto& [tensor, access] : operands) {
    if (tensor.defined() && (access & accelAccessRead) != 0) {
      any = true;
      if (tensor.numel() > 0) {
        return false;
      }
    }
  }
  return any;
}

} // namespace

void check_dtypes(
    c10::ArrayRef<Operand> operands,
    Scalars scalars,
    size_t kernel,
    c10::function_ref<void(at::TensorList dummies)> run,
    DryRunSizes sizes) {
  const auto beyond = misfits(scalars, operands);
  const auto key = c10::hash_combine(key_of(operands, kernel), beyond);
  thread_local std::unordered_set<size_t> known;
  const bool exact = reads_nothing(operands);
  if ((known.count(key) != 0 && !exact) ||
      (beyond == 0 && sizes == DryRunSizes::kReal && !small(operands))) {
    return;
  }
  const IgnoreWarnings ignore;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  try {
    run(dummies(operands, sizes));
  } catch (const c10::NotImplementedError&) {
    throw;
  } catch (const c10::Error&) {
    if (exact) {
      throw;
    }
    // of the values: the worker raises it, if the real ones deserve it
  }
  known.insert(key);
}

} // namespace accel
