"""Bit patterns of the float formats: NumPy arrays of bits to numbers and back, rounded to nearest even or toward zero.

A float is kept as NumPy's own dtype where there is one, and as the bits (uint16, uint8) for bf16 and the 8-bit formats.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .types import Scalar

Array = NDArray[Any]
NATIVE: dict[str, type[np.floating[Any]]] = {"f64": np.float64, "f32": np.float32, "f16": np.float16}
# Exponent bits, mantissa bits, bias, and what the 8-bit formats of torch do with too large numbers: the cast saturates
# (f8e4m3fn), gives infinity (f8e5m2), or gives NaN (the formats without infinities and without -0, "fnuz").
SMALL = {"f8e5m2": (5, 2, 15), "f8e4m3fn": (4, 3, 7), "f8e4m3fnuz": (4, 3, 8), "f8e5m2fnuz": (5, 2, 16)}


def storage(elem: Scalar) -> np.dtype[Any]:
    """The dtype of an array that holds elements of this type."""
    if elem.name in NATIVE:
        return np.dtype(NATIVE[elem.name])
    if elem.is_float:
        return np.dtype(f"uint{elem.width}")
    return np.dtype(np.bool_) if elem.width == 1 else np.dtype(f"int{elem.width}")


@functools.cache
def _codes(name: str) -> Array:
    """The number of each of the 256 patterns of an 8-bit format."""
    exponent_bits, mantissa_bits, bias = SMALL[name]
    code = np.arange(256)
    exponent, mantissa = (code & 127) >> mantissa_bits, code & ((1 << mantissa_bits) - 1)
    scale = np.exp2(np.maximum(exponent, 1).astype(np.float64) - bias - mantissa_bits)
    value = (mantissa + np.where(exponent > 0, 1 << mantissa_bits, 0)) * scale * np.where(code < 128, 1, -1)
    if name.endswith("fnuz"):
        value[128] = np.nan
    elif name == "f8e4m3fn":
        value[[127, 255]] = np.nan
    else:
        top = exponent == (1 << exponent_bits) - 1
        value[top] = np.where(mantissa[top] == 0, np.inf * np.where(code[top] < 128, 1, -1), np.nan)
    return value


def decode(elem: Scalar, stored: Array) -> Array:
    """Numbers of stored floats: float64 of f64, float32 of all others; exact."""
    if elem.name == "bf16":
        return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if elem.name in SMALL:
        return _codes(elem.name).astype(np.float32)[stored]
    return stored if elem.name == "f64" else stored.astype(np.float32)


def narrow_to_odd(number: Array) -> Array:
    """float64 to float32, where an inexact result gets an odd last bit: a later rounding to fewer bits is then the only one."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        nearest = number.astype(np.float32)
    bits = nearest.view(np.uint32).copy()
    back = nearest.astype(np.float64)
    inexact = (back != number) & np.isfinite(number)
    away = np.abs(back) > np.abs(number)
    bits = np.where(inexact & away, bits - np.uint32(1), bits)
    return np.where(inexact, bits | np.uint32(1), bits).astype(np.uint32).view(np.float32)


def encode(elem: Scalar, number: Array, rounding: str = "rtne") -> Array:
    """Numbers (float32 or float64) to stored floats, rounded once: ``rtne`` to nearest even, ``rtz`` toward zero."""
    number = np.asarray(number)
    if elem.name in NATIVE:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            nearest = number.astype(NATIVE[elem.name])
        return nearest if rounding == "rtne" else _toward_zero(number, nearest)
    if elem.name == "bf16":
        single = narrow_to_odd(number) if number.dtype == np.float64 else number.astype(np.float32)
        bits = single.view(np.uint32)
        up = np.uint32(0) if rounding == "rtz" else np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
        rounded = ((bits + up) >> np.uint32(16)).astype(np.uint16)
        quiet = ((bits >> np.uint32(16)) | np.uint32(0x40)).astype(np.uint16)
        return np.where(np.isnan(single), quiet, rounded)
    with np.errstate(invalid="ignore"):  # signalling NaN
        return _encode_small(elem.name, number.astype(np.float64), rounding)


def _toward_zero(number: Array, nearest: Array) -> Array:
    away = np.abs(nearest.astype(np.float64)) > np.abs(number.astype(np.float64))
    return np.where(away, np.nextafter(nearest, nearest.dtype.type(0)), nearest)


def _encode_small(name: str, number: Array, rounding: str) -> Array:
    values = _codes(name)[:128]
    finite = values[np.isfinite(values)]
    magnitude = np.abs(number)
    if rounding == "rtz":
        code = np.searchsorted(finite, magnitude, side="right") - 1
        over = np.isinf(number)
    else:
        halves = (finite[:-1] + finite[1:]) / 2
        code = np.searchsorted(halves, magnitude, side="left")
        tie = (code < len(halves)) & (halves[np.minimum(code, len(halves) - 1)] == magnitude)
        code = np.where(tie & (code % 2 == 1), code + 1, code)
        # The step above the largest number is as wide as the one below it; at its middle the even code is the larger one.
        step = finite[-1] - finite[-2]
        limit = finite[-1] + step / 2
        over = (magnitude > limit) | ((magnitude == limit) & (len(finite) % 2 == 0))
    top = {"f8e5m2": 0x7C, "f8e4m3fn": 0x7E}.get(name, 0x80)
    code = np.where(over, top, code)
    negative = np.signbit(number)
    if name.endswith("fnuz"):
        code = np.where(negative & (code != 0) & (code != 0x80), code | 0x80, code)
        return np.where(np.isnan(number), 0x80, code).astype(np.uint8)
    code = np.where(np.isnan(number), 0x7F, code)
    return np.where(negative, code | 0x80, code).astype(np.uint8)


def bits_of(elem: Scalar, stored: Array) -> list[int]:
    """The bit patterns of stored elements, flattened."""
    flat = np.ascontiguousarray(stored).reshape(-1)
    if elem.width == 1:
        return [int(bit) for bit in flat]
    return [int(bit) for bit in flat.view(f"uint{elem.width}")]


def from_bits(elem: Scalar, bits: Any) -> Array:
    """Stored elements of bit patterns."""
    if elem.width == 1:
        return np.array(bits, dtype=np.bool_)
    return np.array(bits, dtype=f"uint{elem.width}").view(storage(elem))
