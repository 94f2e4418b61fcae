"""What the functions of ``ir.extern`` compute: in float64, then rounded, so that a float32 is the nearest number but for rare ties."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ir.floats import decode, encode
from ..ir.types import Scalar, Type
from .arithmetic import cast, fma

Array = NDArray[Any]


def _guarded(function: Callable[[float], float], domain: Callable[[float], float]) -> Callable[..., Array]:
    """A function of Python's math, with what it raises for as a number."""

    def one(x: float) -> float:
        try:
            return function(x)
        except (ValueError, OverflowError):
            return domain(x)

    vector = np.frompyfunc(one, 1, 1)
    return lambda a: np.asarray(vector(a), dtype=np.float64)


def _gamma_pole(x: float) -> float:
    if abs(x) < 0.5:  # 0, or so small that the value overflows
        return math.copysign(math.inf, x)
    return math.inf if x > 0 else math.nan


_erf = _guarded(math.erf, float)
_erfc = _guarded(math.erfc, float)


def _erfinv(a: Array) -> Array:
    """Newton's steps from Winitzki's approximation; with erfc near 1, where erf has no digits left."""
    y = np.abs(a)
    log = np.log1p(-y * y)
    part = 2 / (math.pi * 0.147) + log / 2
    x = np.sqrt(np.sqrt(part * part - log / 0.147) - part)
    for _ in range(5):
        slope = 2 / math.sqrt(math.pi) * np.exp(-x * x)
        error = np.where(y < 0.5, _erf(x) - y, (1 - y) - _erfc(x))
        step = np.where(slope > 0, error / slope, 0)
        x = x - step / (1 + x * step)
    return np.copysign(np.where(y == 1, np.inf, np.where(y > 1, np.nan, np.where(y == 0, 0, x))), a)


def _logb(a: Array) -> Array:
    exponent = np.frexp(a)[1] - 1.0
    return np.where(a == 0, -np.inf, np.where(np.isinf(a), np.inf, np.where(np.isnan(a), np.nan, exponent)))


def _remainder(a: Array, b: Array) -> Array:
    def one(x: float, y: float) -> float:
        return math.remainder(x, y) if math.isfinite(x) and y else math.nan

    return np.asarray(np.frompyfunc(one, 2, 1)(a, b), dtype=np.float64)


def _pi(function: Callable[..., Array], offset: float) -> Callable[..., Array]:
    """sin(pi * x) or cos(pi * x); the argument is cut to a half turn, and halves are exact."""

    def apply(a: Array) -> Array:
        rest = np.fmod(a, 2.0)
        exact = np.where((rest + offset) % 1 == 0, 0.0, function(np.pi * rest))
        return np.where(np.isinf(a), np.nan, np.where(exact == 0, np.copysign(0.0, a if offset == 0 else 1.0), exact))

    return apply


def _ilogb(a: Array) -> Array:
    special = np.where(a == 0, -(2.0**31), 2.0**31 - 1)
    return np.where((a == 0) | ~np.isfinite(a), special, np.frexp(a)[1] - 1.0)


def _round(a: Array) -> Array:
    """Halves away from zero."""
    whole = np.trunc(a)
    return np.where(np.abs(a - whole) >= 0.5, whole + np.sign(a), whole)


_F64: dict[str, Callable[..., Array]] = {
    **{
        name: getattr(np, name)
        for name in ("cbrt", "ceil", "cos", "cosh", "exp", "exp2", "expm1", "floor", "log", "log10", "log1p", "log2")
    },
    **{
        name: getattr(np, name)
        for name in ("rint", "sin", "sinh", "sqrt", "tan", "tanh", "trunc", "copysign", "fmod", "hypot", "fabs")
    },
    **{f"a{name}": getattr(np, f"arc{name}") for name in ("cos", "cosh", "sin", "sinh", "tan", "tanh", "tan2")},
    "pow": lambda a, b: np.power(a, b),
    "nearbyint": np.rint,
    "erf": _erf,
    "erfc": _erfc,
    "erfinv": _erfinv,
    "normcdf": lambda a: _erfc(-a / math.sqrt(2)) / 2,
    "exp10": lambda a: np.power(10.0, a),
    "lgamma": _guarded(math.lgamma, lambda x: math.inf),
    "tgamma": _guarded(math.gamma, _gamma_pole),
    "logb": _logb,
    "rcbrt": lambda a: 1 / np.cbrt(a),
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "round": _round,
    "saturatef": lambda a: np.where(a > 0, np.minimum(a, 1.0), 0.0),
    "sinpi": _pi(np.sin, 0.0),
    "cospi": _pi(np.cos, 0.5),
    "fdim": lambda a, b: np.where(np.isnan(a) | np.isnan(b), np.nan, np.where(a > b, a - b, 0.0)),
    "remainder": _remainder,
    "ldexp": lambda a, n: np.ldexp(a, n),
    "scalbn": lambda a, n: np.ldexp(a, n),
    "ilogb": _ilogb,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "isfinite": np.isfinite,
    "signbit": np.signbit,
    "llrint": np.rint,
    "llround": _round,
}


def call(name: str, types: Sequence[Type], result: Type, args: Sequence[Array]) -> Array:
    """A function of ``ir.extern.FUNCTIONS`` on stored elements."""
    assert isinstance(result, Scalar)
    floats = [decode(t, a) if isinstance(t, Scalar) and t.is_float else a for t, a in zip(types, args)]
    if name == "nextafter":
        return np.asarray(np.nextafter(*floats))
    if name == "fma":
        return encode(result, fma(*floats))
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in floats]
    value = np.asarray(_F64[name](*wide))
    if result.is_float:
        return encode(result, value)
    return cast("fptosi", Scalar("f64"), result, value.astype(np.float64))
