// at::Scalar as plain bytes, so that kernels can carry it through the ring.
#pragma once

#include <c10/core/Scalar.h>

namespace accel {

class ScalarValue {
 public:
  explicit ScalarValue(const at::Scalar& value) : type_(value.type()) {
    switch (type_) {
      case c10::ScalarType::ComplexDouble: {
        const auto complex = value.toComplexDouble();
        real_ = complex.real();
        imag_ = complex.imag();
        break;
      }
      case c10::ScalarType::Double:
        real_ = value.toDouble();
        break;
      case c10::ScalarType::Bool:
        integer_ = static_cast<uint64_t>(value.toBool());
        break;
      case c10::ScalarType::UInt64:
        integer_ = value.toUInt64();
        break;
      default:
        integer_ = static_cast<uint64_t>(value.toLong());
    }
  }

  at::Scalar to_scalar() const {
    switch (type_) {
      case c10::ScalarType::ComplexDouble:
        return c10::complex<double>(real_, imag_);
      case c10::ScalarType::Double:
        return real_;
      case c10::ScalarType::Bool:
        return integer_ != 0;
      case c10::ScalarType::UInt64:
        return integer_;
      default:
        return static_cast<int64_t>(integer_);
    }
  }

 private:
  c10::ScalarType type_;
  uint64_t integer_ = 0;
  double real_ = 0;
  double imag_ = 0;
};

// Throws what a kernel throws that converts `value` to an element, or if fill_ has no such dtype.
void check_convertible(const at::Scalar& value, at::ScalarType dtype);

} // namespace accel
