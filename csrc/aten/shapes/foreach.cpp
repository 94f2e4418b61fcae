// Operators over lists of tensors: one launch a list.
//
// The CPU computes them tensor after tensor by the operator of the same name, so each output is as
// that operator's meta function says. Lists that it does not take as one (unequal lengths, several
// devices) are declined: the composite kernel then goes through them.
#include <ATen/ExpandUtils.h>
#include <ATen/ops/acos_meta.h>
#include <ATen/ops/add_meta.h>
#include <ATen/ops/addcdiv_meta.h>
#include <ATen/ops/addcmul_meta.h>
#include <ATen/ops/asin_meta.h>
#include <ATen/ops/atan_meta.h>
#include <ATen/ops/ceil_meta.h>
#include <ATen/ops/clamp_max_meta.h>
#include <ATen/ops/clamp_min_meta.h>
#include <ATen/ops/cos_meta.h>
#include <ATen/ops/cosh_meta.h>
#include <ATen/ops/div_meta.h>
#include <ATen/ops/erf_meta.h>
#include <ATen/ops/erfc_meta.h>
#include <ATen/ops/exp_meta.h>
#include <ATen/ops/expm1_meta.h>
#include <ATen/ops/floor_meta.h>
#include <ATen/ops/frac_meta.h>
#include <ATen/ops/lerp_meta.h>
#include <ATen/ops/lgamma_meta.h>
#include <ATen/ops/linalg_vector_norm_meta.h>
#include <ATen/ops/log10_meta.h>
#include <ATen/ops/log1p_meta.h>
#include <ATen/ops/log2_meta.h>
#include <ATen/ops/log_meta.h>
#include <ATen/ops/mm_meta.h>
#include <ATen/ops/mul_meta.h>
#include <ATen/ops/neg_meta.h>
#include <ATen/ops/pow_meta.h>
#include <ATen/ops/reciprocal_meta.h>
#include <ATen/ops/round_meta.h>
#include <ATen/ops/rsqrt_meta.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sgn_meta.h>
#include <ATen/ops/sigmoid_meta.h>
#include <ATen/ops/sign_meta.h>
#include <ATen/ops/sin_meta.h>
#include <ATen/ops/sinh_meta.h>
#include <ATen/ops/sqrt_meta.h>
#include <ATen/ops/sub_meta.h>
#include <ATen/ops/tan_meta.h>
#include <ATen/ops/tanh_meta.h>
#include <ATen/ops/trunc_meta.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "../arguments.h"
#include "../shapes.h"
#include "../structured.h"
#include "iterate.h"

namespace accel {

namespace {

namespace meta = at::meta;
using Scalars = at::ArrayRef<at::Scalar>;

enum class Form { kNew, kInplace };

// ---- One element after the other

// What a pointwise operator's output depends on besides its sizes, if its inputs are contiguous:
// the dtypes of its arguments, and which of them are mere numbers.
class Kind {
 public:
  void add(const at::Tensor& tensor) {
    const bool number = tensor.dim() == 0;
    add(static_cast<int>(tensor.scalar_type()) * 2 + (number ? 1 : 0));
  }
  void add(const at::Scalar& scalar) {
    add(static_cast<int>(scalar.type()) * 2);
  }
  bool operator==(const Kind&) const = default;

 private:
  void add(int value) {
    values_[size_++] = value;
  }
  std::array<int, 4> values_{};
  size_t size_ = 0;
};

// Alike elements are told from the one before: a list has hundreds, and a meta function costs as
// much as the kernel of a small tensor.
template <class Meta, Form form>
class PerElement {
 public:
  explicit PerElement(size_t size) {
    if constexpr (form == Form::kNew) {
      made_.reserve(size);
    }
  }

  template <class... Arguments>
  void operator()(const at::Tensor& self, const Arguments&... arguments) {
    Kind kind;
    kind.add(self);
    (kind.add(arguments), ...);
    const bool simple = at::isFloatingType(self.scalar_type()) && self.is_contiguous() &&
        (simple_beside(self, arguments) && ...);
    if (simple && known_ == kind) {
      if constexpr (form == Form::kNew) {
        made_.push_back(make(self.sizes(), dtype_));
      }
      return;
    }
    if constexpr (form == Form::kNew) {
      Functional<Meta> op;
      op.meta(self, arguments...);
      made_.push_back(op.take());
      dtype_ = made_.back().scalar_type();
    } else {
      Inplace<Meta> op(self);
      op.meta(self, arguments...);
    }
    if (simple) {
      known_ = kind;
    }
  }

  Outputs take() {
    return std::move(made_);
  }

 private:
  static bool simple_beside(const at::Tensor& self, const at::Tensor& other) {
    return (other.dim() == 0 || (other.sizes() == self.sizes() && other.is_contiguous())) &&
        (form == Form::kNew || other.is_same(self) || !overlap(self, other));
  }
  static bool simple_beside(const at::Tensor&, const at::Scalar&) {
    return true;
  }

  c10::SmallVector<at::Tensor, 2> made_;
  std::optional<Kind> known_;
  at::ScalarType dtype_ = at::kFloat;
};

// ---- What an argument has for element i

const at::Tensor& element(const at::TensorList& list, size_t i) {
  return list[i];
}
const at::Scalar& element(const Scalars& list, size_t i) {
  return list[i];
}
const at::Tensor& element(const at::Tensor& same, size_t) {
  return same;
}
const at::Scalar& element(const at::Scalar& same, size_t) {
  return same;
}

bool fits(const at::TensorList& list, size_t size) {
  return list.size() == size;
}
bool fits(const Scalars& list, size_t size) {
  return list.size() == size;
}
bool fits(const at::Tensor& number, size_t) {
  return number.dim() == 0;
}
bool fits(const at::Scalar&, size_t) {
  return true;
}

// A Scalar or Scalar[] as the tensors that arithmetic takes numbers for: one of each type, since
// values do not count here.
class Numbers {
 public:
  explicit Numbers(const c10::IValue& value) : one_(!value.isList()) {
    if (one_) {
      types_.push_back(value.toScalar().type());
    } else {
      for (const c10::IValue& scalar : value.toListRef()) {
        types_.push_back(scalar.toScalar().type());
      }
    }
  }

  friend const at::Tensor& element(const Numbers& numbers, size_t i) {
    auto& tensor = numbers.tensors_[static_cast<size_t>(numbers.types_[numbers.one_ ? 0 : i])];
    if (!tensor.defined()) {
      tensor = at::scalar_tensor(1, at::TensorOptions(numbers.types_[numbers.one_ ? 0 : i]));
      tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    return tensor;
  }
  friend bool fits(const Numbers& numbers, size_t size) {
    return numbers.one_ || numbers.types_.size() == size;
  }

 private:
  bool one_;
  std::vector<at::ScalarType> types_;
  mutable std::array<at::Tensor, static_cast<size_t>(at::ScalarType::NumOptions)> tensors_;
};

// ---- Shape functions

template <Form form, class Meta, class... Arguments>
Outputs each(at::TensorList self, Arguments... arguments) {
  if (self.empty() || !(fits(arguments, self.size()) && ...)) {
    return decline();
  }
  PerElement<Meta, form> per_element(self.size());
  for (size_t i = 0; i < self.size(); ++i) {
    per_element(self[i], element(arguments, i)...);
  }
  return per_element.take();
}

// add and sub, without alpha.
template <class Meta>
struct Alpha1 : Meta {
  void meta(const at::Tensor& self, const at::Tensor& other) {
    Meta::meta(self, other, 1);
  }
};

// addcmul and addcdiv with their factors in a tensor, which the kernel reads.
template <Form form, class Meta>
Outputs packed_scalars(
    at::TensorList self,
    at::TensorList tensor1,
    at::TensorList tensor2,
    const at::Tensor& scalars) {
  const auto dtype = scalars.scalar_type();
  if (scalars.dim() != 1 || !scalars.is_contiguous() ||
      scalars.size(0) != static_cast<int64_t>(self.size()) || at::isComplexType(dtype) ||
      c10::isFloat8Type(dtype)) {
    return decline();
  }
  return each<form, Meta>(self, tensor1, tensor2, at::Scalar(1));
}

Outputs power_of_scalar(at::Scalar base, at::TensorList exponent) {
  Outputs result(std::in_place);
  for (const auto& tensor : exponent) {
    Functional<meta::structured_pow_Scalar> op;
    op.meta(base, tensor);
    result->push_back(op.take());
  }
  return result;
}

Outputs norm(at::TensorList self, at::Scalar ord, std::optional<at::ScalarType> dtype) {
  const double order = ord.isComplex() ? 0 : ord.toDouble();
  Outputs result(std::in_place);
  for (const auto& tensor : self) {
    if (tensor.numel() == 0 && (order < 0 || std::isinf(order))) {
      return decline(); // refused, in other words than vector_norm's
    }
    Functional<meta::structured_linalg_vector_norm> op;
    op.meta(tensor, ord, std::nullopt, false, dtype);
    result->push_back(op.take());
  }
  return result;
}

Outputs maximum_of_all(at::TensorList self) {
  Outputs result(std::in_place);
  for (const auto& tensor : self) {
    if (tensor.numel() == 0 || tensor.is_complex()) {
      return decline();
    }
    result->push_back(make({}, tensor.scalar_type()));
  }
  return result;
}

bool any_complex(at::TensorList list) {
  return std::any_of(
      list.begin(), list.end(), [](const at::Tensor& tensor) { return tensor.is_complex(); });
}

Outputs absolute(at::TensorList self) {
  if (!any_complex(self)) {
    return each<Form::kNew, meta::structured_sgn>(self);
  }
  Outputs result(std::in_place);
  for (const auto& tensor : self) {
    const auto real = c10::toRealValueType(tensor.scalar_type());
    result->push_back(elementwise({tensor}, real)->front());
  }
  return result;
}

Outputs absolute_(at::TensorList self) {
  return any_complex(self) ? decline() : outputs();
}

Outputs clone(at::TensorList self, std::optional<at::MemoryFormat> format) {
  const auto wanted = format.value_or(at::MemoryFormat::Preserve);
  Outputs result(std::in_place);
  for (const auto& tensor : self) {
    if (wanted == at::MemoryFormat::Preserve) {
      result->push_back(make_like(tensor));
    } else {
      result->push_back(make(tensor.sizes(), tensor.scalar_type(), wanted));
    }
  }
  return result;
}

Outputs preserved(at::TensorList self) {
  return clone(self, std::nullopt);
}

Outputs zero_(at::TensorList) {
  return outputs();
}

bool copies(at::TensorList self, at::TensorList source) {
  if (self.empty() || self.size() != source.size()) {
    return false;
  }
  for (size_t i = 0; i < self.size(); ++i) {
    if (!at::is_expandable_to(source[i].sizes(), self[i].sizes()) ||
        (!self[i].is_same(source[i]) && overlap(self[i], source[i]))) {
      return false;
    }
  }
  return true;
}

Outputs copy_(at::TensorList self, at::TensorList source) {
  return copies(self, source) ? outputs() : decline();
}

Outputs copy(at::TensorList self, at::TensorList source) {
  const bool dense = std::all_of(self.begin(), self.end(), [](const at::Tensor& tensor) {
    return tensor.is_non_overlapping_and_dense();
  });
  return dense && copies(self, source) ? preserved(self) : decline();
}

Outputs matmuls(at::TensorList self, at::TensorList other) {
  if (self.empty() || self.size() != other.size()) {
    return decline();
  }
  Outputs result(std::in_place);
  for (size_t i = 0; i < self.size(); ++i) {
    if (self[i].scalar_type() != other[i].scalar_type()) {
      return decline();
    }
    Functional<meta::structured_mm> op;
    op.meta(self[i], other[i]);
    result->push_back(op.take());
  }
  return result;
}

} // namespace

template <>
struct detail::Argument<Numbers> {
  static Numbers read(const c10::IValue& value) {
    return Numbers(value);
  }
};

namespace {

// ---- Costs

// `each` operations per element of the list that argument `index` is.
template <int each, size_t index = 0>
int64_t per_element(Arguments arguments, at::TensorList) {
  int64_t elements = 0;
  for_each_tensor(arguments[index], [&](const at::Tensor& tensor) { elements += tensor.numel(); });
  return each * elements;
}

int64_t matmul_flops(Arguments arguments, at::TensorList outputs) {
  const auto self = arguments[0].toTensorVector();
  int64_t flops = 0;
  for (size_t i = 0; i < self.size(); ++i) {
    flops += 2 * self[i].size(1) * outputs[i].numel();
  }
  return flops;
}

// ---- Rows

using at::Scalar;
using at::Tensor;
using at::TensorList;

// The functional, the in-place and the out= form of an overload.
#define FORMS(name, overload, out_overload, cost, function, ...)                               \
  {"_foreach_" name overload, shape<function<Form::kNew, __VA_ARGS__>>, per_element<cost>},    \
      {"_foreach_" name "_" overload,                                                          \
       shape<function<Form::kInplace, __VA_ARGS__>>,                                           \
       per_element<cost>},                                                                     \
  {                                                                                            \
    "_foreach_" name out_overload, shape<function<Form::kNew, __VA_ARGS__>>, per_element<cost> \
  }
#define UNARY(name) FORMS(#name, "", ".out", 1, each, meta::structured_##name)
#define OVERLOAD(name, overload, cost, ...) \
  FORMS(name, "." overload, "." overload "_out", cost, each, __VA_ARGS__)
#define PACKED(name, meta_class) \
  FORMS(name, ".Tensor", ".Tensor_out", 3, packed_scalars, meta_class)

const ShapeRow kRows[] = {
    UNARY(acos),
    UNARY(asin),
    UNARY(atan),
    UNARY(ceil),
    UNARY(cos),
    UNARY(cosh),
    UNARY(erf),
    UNARY(erfc),
    UNARY(exp),
    UNARY(expm1),
    UNARY(floor),
    UNARY(frac),
    UNARY(lgamma),
    UNARY(log),
    UNARY(log10),
    UNARY(log1p),
    UNARY(log2),
    UNARY(neg),
    UNARY(reciprocal),
    UNARY(round),
    UNARY(rsqrt),
    UNARY(sigmoid),
    UNARY(sign),
    UNARY(sin),
    UNARY(sinh),
    UNARY(sqrt),
    UNARY(tan),
    UNARY(tanh),
    UNARY(trunc),
    OVERLOAD("add", "List", 2, meta::structured_add_Tensor, TensorList, Scalar),
    OVERLOAD("add", "Scalar", 1, Alpha1<meta::structured_add_Tensor>, Numbers),
    OVERLOAD("add", "ScalarList", 1, Alpha1<meta::structured_add_Tensor>, Numbers),
    OVERLOAD("add", "Tensor", 2, meta::structured_add_Tensor, const Tensor&, Scalar),
    OVERLOAD("sub", "List", 2, meta::structured_sub_Tensor, TensorList, Scalar),
    OVERLOAD("sub", "Scalar", 1, Alpha1<meta::structured_sub_Tensor>, Numbers),
    OVERLOAD("sub", "ScalarList", 1, Alpha1<meta::structured_sub_Tensor>, Numbers),
    OVERLOAD("mul", "List", 1, meta::structured_mul_Tensor, TensorList),
    OVERLOAD("mul", "Scalar", 1, meta::structured_mul_Tensor, Numbers),
    OVERLOAD("mul", "ScalarList", 1, meta::structured_mul_Tensor, Numbers),
    OVERLOAD("mul", "Tensor", 1, meta::structured_mul_Tensor, const Tensor&),
    OVERLOAD("div", "List", 1, meta::structured_div_Tensor, TensorList),
    OVERLOAD("div", "Scalar", 1, meta::structured_div_Tensor, Numbers),
    OVERLOAD("div", "ScalarList", 1, meta::structured_div_Tensor, Numbers),
    OVERLOAD("div", "Tensor", 1, meta::structured_div_Tensor, const Tensor&),
    OVERLOAD("clamp_max", "List", 1, meta::structured_clamp_max_Tensor, TensorList),
    OVERLOAD("clamp_max", "Scalar", 1, meta::structured_clamp_max, Scalar),
    OVERLOAD("clamp_max", "ScalarList", 1, meta::structured_clamp_max, Scalars),
    OVERLOAD("clamp_min", "List", 1, meta::structured_clamp_min_Tensor, TensorList),
    OVERLOAD("clamp_min", "Scalar", 1, meta::structured_clamp_min, Scalar),
    OVERLOAD("clamp_min", "ScalarList", 1, meta::structured_clamp_min, Scalars),
    OVERLOAD("maximum", "List", 1, meta::structured_clamp_min_Tensor, TensorList),
    OVERLOAD("maximum", "Scalar", 1, meta::structured_clamp_min, Scalar),
    OVERLOAD("maximum", "ScalarList", 1, meta::structured_clamp_min, Scalars),
    OVERLOAD("minimum", "List", 1, meta::structured_clamp_max_Tensor, TensorList),
    OVERLOAD("minimum", "Scalar", 1, meta::structured_clamp_max, Scalar),
    OVERLOAD("minimum", "ScalarList", 1, meta::structured_clamp_max, Scalars),
    OVERLOAD("pow", "List", 1, meta::structured_pow_Tensor_Tensor, TensorList),
    OVERLOAD("pow", "Scalar", 1, meta::structured_pow_Tensor_Scalar, Scalar),
    OVERLOAD("pow", "ScalarList", 1, meta::structured_pow_Tensor_Scalar, Scalars),
    OVERLOAD("lerp", "List", 3, meta::structured_lerp_Tensor, TensorList, TensorList),
    OVERLOAD("lerp", "Scalar", 3, meta::structured_lerp_Scalar, TensorList, Scalar),
    OVERLOAD("lerp", "ScalarList", 3, meta::structured_lerp_Scalar, TensorList, Scalars),
    OVERLOAD("addcdiv", "Scalar", 3, meta::structured_addcdiv, TensorList, TensorList, Scalar),
    OVERLOAD("addcdiv", "ScalarList", 3, meta::structured_addcdiv, TensorList, TensorList, Scalars),
    PACKED("addcdiv", meta::structured_addcdiv),
    OVERLOAD("addcmul", "Scalar", 3, meta::structured_addcmul, TensorList, TensorList, Scalar),
    OVERLOAD("addcmul", "ScalarList", 3, meta::structured_addcmul, TensorList, TensorList, Scalars),
    PACKED("addcmul", meta::structured_addcmul),
    {"_foreach_abs", shape<absolute>, per_element<1>},
    {"_foreach_abs.out", shape<absolute>, per_element<1>},
    {"_foreach_abs_", shape<absolute_>, per_element<1>},
    {"_foreach_clone", shape<clone>, no_flops},
    {"_foreach_clone.out", shape<clone>, no_flops},
    {"_foreach_copy", shape<copy>, no_flops},
    {"_foreach_copy.out", shape<copy>, no_flops},
    {"_foreach_copy_", shape<copy_>, no_flops},
    {"_foreach_max", shape<maximum_of_all>, per_element<1>},
    {"_foreach_max.out", shape<maximum_of_all>, per_element<1>},
    {"_foreach_mm", shape<matmuls>, matmul_flops},
    {"_foreach_norm.Scalar", shape<norm>, per_element<2>},
    {"_foreach_norm.Scalar_out", shape<norm>, per_element<2>},
    {"_foreach_pow.ScalarAndTensor", shape<power_of_scalar>, per_element<1, 1>},
    {"_foreach_powsum.Scalar", shape<norm>, per_element<2>},
    {"_foreach_powsum.Scalar_out", shape<norm>, per_element<2>},
    {"_foreach_zero", shape<preserved>, no_flops},
    {"_foreach_zero.out", shape<preserved>, no_flops},
    {"_foreach_zero_", shape<zero_>, no_flops},
};

} // namespace

c10::ArrayRef<ShapeRow> foreach_rows() {
  return kRows;
}

} // namespace accel
