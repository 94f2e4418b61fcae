"""What the opcodes compute, on arrays of stored elements (``floats.storage``). The rules are in docs/semantics.md."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ir.floats import decode, encode, storage
from ..ir.types import Ptr, Scalar, Type

Array = NDArray[Any]


def signed(stored: Array) -> Array:
    """Integers with a sign; the i1 true is -1."""
    return -stored.astype(np.int8) if stored.dtype == np.bool_ else stored


def unsigned(stored: Array) -> Array:
    """Integers without a sign."""
    return stored.astype(np.uint8) if stored.dtype == np.bool_ else stored.view(f"uint{stored.dtype.itemsize * 8}")


def wrapped(elem: Scalar, value: Array) -> Array:
    """Integers cut to an element's bits."""
    return (value & 1).astype(np.bool_) if elem.width == 1 else value.astype(f"int{elem.width}")


def integer(opcode: str, elem: Scalar, a: Array, b: Array) -> Array:
    """A binary opcode of integers."""
    if opcode in ("shli", "shrui", "shrsi"):
        return _shift(opcode, elem, a, b)
    if opcode in ("divsi", "divui", "remsi", "remui"):
        return _divide(opcode, elem, a, b)
    if opcode == "mulhiui":
        return wrapped(elem, _high(unsigned(a), unsigned(b), elem.width))
    sign = unsigned if opcode.endswith("ui") else signed
    return wrapped(elem, _INTEGER[opcode](sign(a), sign(b)))


_INTEGER: dict[str, Callable[..., Array]] = {
    "addi": np.add,
    "subi": np.subtract,
    "muli": np.multiply,
    "andi": np.bitwise_and,
    "ori": np.bitwise_or,
    "xori": np.bitwise_xor,
    **dict.fromkeys(("minsi", "minui"), np.minimum),
    **dict.fromkeys(("maxsi", "maxui"), np.maximum),
}


def _shift(opcode: str, elem: Scalar, a: Array, b: Array) -> Array:
    """The amount has no sign; one of the width or more gives 0, or the sign."""
    amount = unsigned(b)
    safe = np.minimum(amount, elem.width - 1).astype(amount.dtype)
    if opcode == "shrsi":
        value = signed(a)
        return wrapped(elem, np.right_shift(value, safe.astype(value.dtype)))
    value = unsigned(a)
    shifted = np.left_shift(value, safe) if opcode == "shli" else np.right_shift(value, safe)
    return wrapped(elem, np.where(amount < elem.width, shifted, 0).astype(value.dtype))


def _divide(opcode: str, elem: Scalar, a: Array, b: Array) -> Array:
    """Toward zero; x / 0 is 0 and x % 0 is x; the least number / -1 wraps to itself, and % -1 is 0."""
    a, b = (unsigned(a), unsigned(b)) if opcode.endswith("ui") else (signed(a), signed(b))
    zero = b == 0
    minus = b == np.array(-1).astype(b.dtype) if opcode.endswith("si") else np.zeros_like(zero)
    safe = np.where(zero | minus, 1, b).astype(b.dtype)
    remainder = np.where(zero, a, np.where(minus, 0, np.fmod(a, safe)))
    quotient = np.where(zero, 0, np.where(minus, np.negative(a), (a - np.fmod(a, safe)) // safe))
    return wrapped(elem, (remainder if opcode.startswith("rem") else quotient).astype(a.dtype))


def _high(a: Array, b: Array, width: int) -> Array:
    """The upper half of a product of twice the width."""
    if width <= 32:
        return (a.astype(np.uint64) * b.astype(np.uint64)) >> np.uint64(width)
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a0, a1, b0, b1 = a & low, a >> half, b & low, b >> half
    middle = a1 * b0 + ((a0 * b0) >> half)
    other = a0 * b1 + (middle & low)
    return a1 * b1 + (middle >> half) + (other >> half)


def _libm_fma() -> Callable[..., Any]:
    function = ctypes.CDLL(ctypes.util.find_library("m") or "libm.so.6").fma
    function.argtypes, function.restype = [ctypes.c_double] * 3, ctypes.c_double
    return np.frompyfunc(function, 3, 1)


_fma64 = functools.cache(_libm_fma)


def fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c rounded once: float64 of float64; of float32 a float64 rounded to odd, which ``encode`` rounds for good."""
    if a.dtype == np.float64:
        return np.asarray(_fma64()(a, b, c), dtype=np.float64)
    product = a.astype(np.float64) * b.astype(np.float64)  # exact
    addend = c.astype(np.float64)
    total = np.asarray(product + addend)
    part = total - product
    error = (product - (total - part)) + (addend - part)
    inexact = np.isfinite(total) & np.isfinite(error) & (error != 0)
    bits = total.view(np.int64)
    away = np.signbit(error) != np.signbit(total)
    return np.where(inexact, (bits - away) | 1, bits).astype(np.int64).view(np.float64)


def _extreme(larger: bool, quiet: bool, a: Array, b: Array) -> Array:
    """-0 is less than +0. A NaN wins, or loses if ``quiet``."""
    first = np.where(np.signbit(a) == larger, b, a)  # of two zeros
    picked = np.where((a > b) if larger else (a < b), a, b)
    value = np.where(a == b, np.where(a == 0, first, a), picked)
    number = np.where(np.isnan(a), b, a) if quiet else np.where(np.isnan(a), a, b)
    return np.where(np.isnan(a) | np.isnan(b), number, value).astype(a.dtype)


def _wide(function: Callable[..., Any]) -> Callable[..., Array]:
    """Computed in float64, so that rounding to any smaller format gives the nearest number but for very rare ties."""
    return lambda a: np.asarray(function(a.astype(np.float64)))


_erf = np.frompyfunc(math.erf, 1, 1)
_FLOAT: dict[str, Callable[..., Array]] = {
    "addf": np.add,
    "subf": np.subtract,
    "mulf": np.multiply,
    "divf": np.divide,
    "remf": np.fmod,
    "maximumf": functools.partial(_extreme, True, False),
    "minimumf": functools.partial(_extreme, False, False),
    "maxnumf": functools.partial(_extreme, True, True),
    "minnumf": functools.partial(_extreme, False, True),
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "absf": np.abs,
    "negf": np.negative,
    "fma": fma,
    "exp": _wide(np.exp),
    "exp2": _wide(np.exp2),
    "log": _wide(np.log),
    "log2": _wide(np.log2),
    "rsqrt": _wide(lambda a: 1 / np.sqrt(a)),
    "sin": _wide(np.sin),
    "cos": _wide(np.cos),
    "erf": _wide(lambda a: np.asarray(_erf(a), dtype=np.float64)),
}


def elementwise(opcode: str, type: Type, *args: Array) -> Array:
    """An opcode of ``opcodes.ELEMENTWISE`` on elements of one type."""
    if isinstance(type, Ptr):
        assert isinstance(type.elem, (Scalar, Ptr))
        return args[0] + args[1].astype(np.int64) * size(type.elem)
    assert isinstance(type, Scalar)
    if type.is_float:
        return encode(type, np.asarray(_FLOAT[opcode](*(decode(type, arg) for arg in args))))
    if opcode == "absi":
        return wrapped(type, np.abs(signed(args[0])))
    return integer(opcode, type, *args)


def size(elem: Scalar | Ptr) -> int:
    """Bytes of an element in memory."""
    return 8 if isinstance(elem, Ptr) else max(1, elem.width // 8)


def array_dtype(elem: Type) -> np.dtype[Any]:
    """The dtype of an array of these elements; addresses are int64."""
    return np.dtype(np.int64) if isinstance(elem, Ptr) else storage(elem)  # type: ignore[arg-type]


_INT_COMPARE = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def compare(predicate: str, type: Type, a: Array, b: Array) -> Array:
    """A predicate of ``opcodes.INT_PREDICATES`` or ``FLOAT_PREDICATES``."""
    if not isinstance(type, Scalar) or type.is_int:
        sign = unsigned if predicate[0] == "u" else signed
        return np.asarray(_INT_COMPARE[predicate[-2:]](sign(a), sign(b)))
    a, b = decode(type, a), decode(type, b)
    no_order = np.isnan(a) | np.isnan(b)
    if predicate in ("false", "true"):
        return np.full(no_order.shape, predicate == "true")
    if predicate in ("ord", "uno"):
        return no_order ^ (predicate == "ord")
    answer = _INT_COMPARE[predicate[1:]](a, b)
    return np.asarray(answer | no_order if predicate[0] == "u" else answer & ~no_order)


def cast(kind: str, old: Scalar, new: Scalar, stored: Array, rounding: str = "rtne") -> Array:
    """A kind of ``opcodes.CASTS``."""
    if kind in ("extsi", "extui", "trunci"):
        return wrapped(new, (signed(stored) if kind == "extsi" else unsigned(stored)).astype(np.int64))
    if kind in ("sitofp", "uitofp"):
        number = signed(stored) if kind == "sitofp" else unsigned(stored)
        # As torch does: by way of float32.
        return encode(new, number.astype(np.float64 if new.name == "f64" else np.float32))
    if kind == "float":
        return encode(new, decode(old, stored), rounding)
    return _saturate(new, decode(old, stored), kind == "fptosi")


def _saturate(new: Scalar, number: Array, sign: bool) -> Array:
    """Toward zero; too large numbers give the nearest integer there is, NaN gives 0."""
    whole = np.trunc(number.astype(np.float64))
    least, most = (-(1 << new.width - 1), (1 << new.width - 1) - 1) if sign else (0, (1 << new.width) - 1)
    dtype = np.int64 if sign else np.uint64
    under, over = whole < least, whole >= float(most + 1)
    inside = np.where(under | over | np.isnan(whole), 0, whole).astype(dtype)
    value = np.where(over, dtype(most), np.where(under, np.array(least).astype(dtype), inside))
    return wrapped(new, value)


def bitcast(new: Type, stored: Array) -> Array:
    """The same bits as another type."""
    dtype = array_dtype(new)
    return stored if stored.dtype == dtype else np.ascontiguousarray(stored).view(dtype).reshape(stored.shape)
