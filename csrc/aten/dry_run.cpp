#include "dry_run.h"

#include <ATen/OpMathType.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>
#include <c10/util/hash.h>

#include <array>
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

// What one look at the operands tells.
struct Look {
  size_t key; // of the kernel and the dtypes; never 0
  bool small;
  bool reads_nothing; // no element at all: then dummies are as good as the operands
};

Look look_at(c10::ArrayRef<Operand> operands, size_t kernel) {
  constexpr size_t kOdd = 0x9e3779b97f4a7c15; // spreads the bits
  size_t key = kernel;
  int64_t elements = 0;
  int64_t read = 0;
  bool reads = false;
  for (const auto& [tensor, access] : operands) {
    size_t dtype = static_cast<size_t>(c10::ScalarType::Undefined) * 2;
    if (const auto* const impl = tensor.unsafeGetTensorImpl(); tensor.defined()) {
      const auto numel = impl->numel();
      // Kernels take short cuts there, in which they do not look at the dtype.
      const bool special = numel == 0 || impl->dim() == 0;
      dtype = static_cast<size_t>(tensor.scalar_type()) * 2 + special;
      elements += numel;
      if ((access & accelAccessRead) != 0) {
        reads = true;
        read += numel;
      }
    }
    key = (key ^ dtype) * kOdd;
    key ^= key >> 32;
  }
  return {key | 1, elements <= kMaxElements, reads && read == 0};
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

// The keys that this thread has tried. A few are found without hashing, and without the test for a
// first use that a thread's set costs.
class Tried {
 public:
  static bool contains(size_t key) {
    auto& slot = slot_of(key);
    if (C10_LIKELY(slot == key)) {
      return true;
    }
    if (all().count(key) == 0) {
      return false;
    }
    slot = key;
    return true;
  }
  static void add(size_t key) {
    all().insert(key);
    slot_of(key) = key;
  }

 private:
  static constexpr size_t kSlots = 256;
  static size_t& slot_of(size_t key) {
    thread_local std::array<size_t, kSlots> slots{};
    return slots[(key >> 1) % kSlots];
  }
  static std::unordered_set<size_t>& all() {
    thread_local std::unordered_set<size_t> keys;
    return keys;
  }
};

} // namespace

void check_dtypes(
    c10::ArrayRef<Operand> operands,
    Scalars scalars,
    size_t kernel,
    c10::function_ref<void(at::TensorList dummies)> run,
    DryRunSizes sizes) {
  const auto look = look_at(operands, kernel);
  const auto beyond = misfits(scalars, operands);
  const auto key = beyond == 0 ? look.key : c10::hash_combine(look.key, beyond) | 1;
  const bool exact = look.reads_nothing;
  if ((!exact && Tried::contains(key)) ||
      (beyond == 0 && sizes == DryRunSizes::kReal && !look.small)) {
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
  Tried::add(key);
}

} // namespace accel
