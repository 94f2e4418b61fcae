// A boxed call as shape functions see it, and what they answer.
//
// A shape function has the operator's arguments as C++ types, from the first on, as many as it
// needs. It makes the outputs (their sizes, strides and dtypes are the CPU kernel's, their values
// come later), or declines: then the call is waited for and the CPU's kernel decides, or raises.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace accel {

using Arguments = c10::ArrayRef<c10::IValue>;
using Outputs = std::optional<c10::SmallVector<at::Tensor, 2>>;
using ShapeFunction = Outputs (*)(Arguments);

inline Outputs decline() {
  return std::nullopt;
}
template <class... Tensors>
Outputs outputs(Tensors&&... tensors) {
  Outputs result(std::in_place);
  (result->push_back(std::forward<Tensors>(tensors)), ...);
  return result;
}

// Whether two tensors share memory for all that kernels look: those refuse it.
bool overlap(const at::Tensor& a, const at::Tensor& b);

// ---- Making outputs, on the current device

at::Tensor make(at::IntArrayRef sizes, at::ScalarType dtype);
at::Tensor make(at::IntArrayRef sizes, at::ScalarType dtype, at::MemoryFormat format);
at::Tensor make_strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype);
// As empty_like: self's strides where it is dense.
at::Tensor make_like(const at::Tensor& self);
at::Tensor make_like(const at::Tensor& self, at::ScalarType dtype);
// An out= argument after `out.resize_(sizes)`, which some kernels call: torch gives no warning
// then.
at::Tensor resized(const at::Tensor& out, at::IntArrayRef sizes);

// ---- Arguments as C++ types

namespace detail {

// What an argument of type T is read into; it converts to T.
template <class T>
struct Argument {
  static T read(const c10::IValue& value) {
    return value.to<T>();
  }
};
template <>
struct Argument<const at::Tensor&> { // Tensor or Tensor?
  static const at::Tensor& read(const c10::IValue& value) {
    static const at::Tensor undefined;
    return value.isNone() ? undefined : value.toTensor();
  }
};
template <>
struct Argument<at::IntArrayRef> {
  static at::DimVector read(const c10::IValue& value) {
    return value.toDimVector();
  }
};
template <>
struct Argument<at::OptionalIntArrayRef> {
  struct Holder {
    std::optional<at::DimVector> values;
    operator at::OptionalIntArrayRef() const {
      return values ? at::OptionalIntArrayRef(at::IntArrayRef(*values)) : std::nullopt;
    }
  };
  static Holder read(const c10::IValue& value) {
    return {value.isNone() ? std::nullopt : std::optional<at::DimVector>(value.toDimVector())};
  }
};
template <>
struct Argument<at::TensorList> {
  static std::vector<at::Tensor> read(const c10::IValue& value) {
    return value.toTensorVector();
  }
};
template <>
struct Argument<at::ArrayRef<at::Scalar>> {
  static std::vector<at::Scalar> read(const c10::IValue& value) {
    std::vector<at::Scalar> scalars;
    for (const c10::IValue& scalar : value.toListRef()) {
      scalars.push_back(scalar.toScalar());
    }
    return scalars;
  }
};
template <>
struct Argument<at::ScalarType> {
  static at::ScalarType read(const c10::IValue& value) {
    return value.toScalarType();
  }
};
template <>
struct Argument<std::string_view> {
  static std::string_view read(const c10::IValue& value) {
    return value.toStringView();
  }
};

template <class... Parameters, size_t... I>
Outputs apply(Outputs (*function)(Parameters...), Arguments arguments, std::index_sequence<I...>) {
  return function(Argument<Parameters>::read(arguments[I])...);
}

template <class... Parameters>
Outputs apply(Outputs (*function)(Parameters...), Arguments arguments) {
  static_assert(
      ((std::is_same_v<Parameters, const at::Tensor&> || !std::is_reference_v<Parameters>) && ...),
      "take tensors by const reference, everything else by value");
  return apply(function, arguments, std::index_sequence_for<Parameters...>());
}

} // namespace detail

// A C++ function as the table holds it.
template <auto function>
Outputs shape(Arguments arguments) {
  return detail::apply(function, arguments);
}

} // namespace accel
