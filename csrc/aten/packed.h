// Arguments of operators as plain bytes, so that kernels can carry them through the ring.
//
// Lists and strings are copied up to a fixed length. A longer one is referred to, which `fits`
// tells: the launch must then be waited for.
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <c10/core/Scalar.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/OptionalArrayRef.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "scalar_value.h"

namespace accel {

template <class T, size_t Capacity>
class PackedArray {
 public:
  PackedArray(const T* data, size_t size) : size_(size), long_(data) {
    if (fits()) {
      std::copy_n(data, size, short_.begin());
    }
  }
  const T* data() const {
    return fits() ? short_.data() : long_;
  }
  size_t size() const {
    return size_;
  }
  bool fits() const {
    return size_ <= Capacity;
  }

 private:
  size_t size_;
  const T* long_;
  std::array<T, Capacity> short_{};
};

class PackedScalar {
 public:
  explicit PackedScalar(const at::Scalar& value) : value_(value) {}
  at::Scalar unpack() const {
    return value_.to_scalar();
  }

 private:
  ScalarValue value_;
};

class PackedInts {
 public:
  explicit PackedInts(at::IntArrayRef values) : values_(values.data(), values.size()) {}
  at::IntArrayRef unpack() const {
    return {values_.data(), values_.size()};
  }
  bool fits() const {
    return values_.fits();
  }

 private:
  PackedArray<int64_t, 8> values_;
};

class PackedString {
 public:
  explicit PackedString(std::string_view text) : text_(text.data(), text.size()) {}
  std::string_view unpack() const {
    return {text_.data(), text_.size()};
  }
  bool fits() const {
    return text_.fits();
  }

 private:
  PackedArray<char, 32> text_;
};

// Packed, and the type that it unpacks to: std::optional of a packed value cannot convert to the
// optional that an operator takes.
template <class Packed, class Optional>
class PackedOptional {
 public:
  explicit PackedOptional(const Optional& value) {
    if (value.has_value()) {
      value_.emplace(*value);
    }
  }
  Optional unpack() const {
    return value_ ? Optional(value_->unpack()) : Optional(std::nullopt);
  }
  bool fits() const {
    return !value_ || value_->fits();
  }

 private:
  std::optional<Packed> value_;
};

inline PackedScalar pack(const at::Scalar& value) {
  return PackedScalar(value);
}
inline PackedOptional<PackedScalar, std::optional<at::Scalar>> pack(
    const std::optional<at::Scalar>& value) {
  return PackedOptional<PackedScalar, std::optional<at::Scalar>>(value);
}
inline PackedInts pack(at::IntArrayRef values) {
  return PackedInts(values);
}
inline PackedOptional<PackedInts, at::OptionalIntArrayRef> pack(at::OptionalIntArrayRef values) {
  return PackedOptional<PackedInts, at::OptionalIntArrayRef>(values);
}
inline PackedString pack(std::string_view text) {
  return PackedString(text);
}
inline PackedOptional<PackedString, std::optional<std::string_view>> pack(
    std::optional<std::string_view> text) {
  return PackedOptional<PackedString, std::optional<std::string_view>>(text);
}

// Whether all of these were copied.
bool fits(const auto&... packed) {
  return (packed.fits() && ...);
}

} // namespace accel
