"""The functions of ``ir.extern`` on stored elements: what ``interpret.extern`` computes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..ir.extern import FUNCTIONS
from ..ir.types import F64, Scalar
from . import libm, scalars
from .emit import Lanes
from .math import Ops, function

_INTRINSICS = {
    name: name for name in ("ceil", "floor", "trunc", "rint", "nearbyint", "round", "sqrt", "copysign", "fma")
}
_INTRINSICS["fabs"] = "fabs"


def call(e: Lanes, name: str, float_type: Scalar, args: Sequence[str]) -> str:
    """A function of ``ir.extern.FUNCTIONS``; ``float_type`` (f32 or f64) is that of its float operands."""
    base = "double" if float_type == F64 else "float"
    f = Ops(e, base)
    if name in _INTRINSICS:
        return e.call(_INTRINSICS[name], base, *args)
    if name in ("fmod", "nextafter"):  # exact in both types
        return libm.call(e, name if base == "double" else f"{name}f", base, args)
    if name in _EXACT:
        return _EXACT[name](f, *args)
    if name in _DERIVED:
        wide = [e.convert("fpext", base, "double", arg) for arg in args]
        return e.convert("fptrunc", "double", base, _DERIVED[name](Ops(e, "double"), *wide))
    assert FUNCTIONS[name][1] == "f"
    return function(e, name, base, args)


def _saturate(f: Ops, x: str) -> str:
    """To [0, 1]; NaN gives 0."""
    low = f.pick(f.test("ogt", x, f.c(0.0)), x, f.c(0.0))
    return f.pick(f.test("ogt", low, f.c(1.0)), f.c(1.0), low)


def _positive_difference(f: Ops, a: str, b: str) -> str:
    value = f.pick(f.test("ogt", a, b), f.sub(a, b), f.c(0.0))
    return f.pick(f.test("uno", a, b), f.c(math.nan), value)


def _ldexp(f: Ops, x: str, n: str) -> str:
    """Three factors, each exact but the last one that leaves the range."""
    e = f.e
    limit, digits = (2100, 52) if f.base == "double" else (300, 23)
    top = 1023 if f.base == "double" else 127
    n = e.call("smax", "i32", e.call("smin", "i32", n, e.const("i32", limit)), e.const("i32", -limit))
    # A negative power goes down in steps that keep the number normal until the last one.
    for _ in range(3):
        step = e.call("smax", "i32", e.call("smin", "i32", n, e.const("i32", top)), e.const("i32", digits + 1 - top))
        n = e.binary("sub", "i32", n, step)
        biased = e.convert("sext", "i32", f.bits, e.binary("add", "i32", step, e.const("i32", top)))
        x = f.mul(x, f.from_bits(e.binary("shl", f.bits, biased, e.const(f.bits, digits))))
    return x


def _exponent(f: Ops, x: str) -> str:
    """Of a finite number that is not 0, as i32; denormals count as if they were normal."""
    e = f.e
    digits, top = (52, 1023) if f.base == "double" else (23, 127)
    size = f.abs(x)
    tiny = f.test("olt", size, f.c(2.0 ** (1 - top)))
    bits = f.to_bits(f.pick(tiny, f.mul(size, f.c(2.0**digits)), size))
    biased = e.binary("lshr", f.bits, bits, e.const(f.bits, digits))
    less = e.select(tiny, "i32", e.const("i32", top + digits), e.const("i32", top))
    return e.binary("sub", "i32", e.convert("trunc", f.bits, "i32", biased), less)


def _finite(f: Ops, x: str) -> str:
    return f.test("olt", f.abs(x), f.c(math.inf))


def _logb(f: Ops, x: str) -> str:
    value = f.e.convert("sitofp", "i32", f.base, _exponent(f, x))
    value = f.pick(_finite(f, x), value, f.mul(x, x))
    return f.pick(f.test("oeq", x, f.c(0.0)), f.c(-math.inf), value)


def _ilogb(f: Ops, x: str) -> str:
    value = f.e.select(_finite(f, x), "i32", _exponent(f, x), f.e.const("i32", (1 << 31) - 1))
    return f.e.select(f.test("oeq", x, f.c(0.0)), "i32", f.e.const("i32", -(1 << 31)), value)


def _flag(f: Ops, condition: str) -> str:
    return f.e.convert("zext", "i1", "i32", condition)


def _sign_bit(f: Ops, x: str) -> str:
    return _flag(f, f.e.compare("icmp slt", f.bits, f.to_bits(x), f.e.const(f.bits, 0)))


def _to_long(rounding: str) -> Callable[[Ops, str], str]:
    return lambda f, x: scalars.saturate(f.e, f.base, Scalar("i64"), f.e.call(rounding, f.base, x), True)


_EXACT: dict[str, Callable[..., str]] = {
    "saturatef": _saturate,
    "fdim": _positive_difference,
    "ldexp": _ldexp,
    "scalbn": _ldexp,
    "logb": _logb,
    "ilogb": _ilogb,
    "isnan": lambda f, x: _flag(f, f.test("uno", x, x)),
    "isinf": lambda f, x: _flag(f, f.test("oeq", f.abs(x), f.c(math.inf))),
    "isfinite": lambda f, x: _flag(f, _finite(f, x)),
    "signbit": _sign_bit,
    "llrint": _to_long("rint"),
    "llround": _to_long("round"),
}


def _library(f: Ops, name: str, *args: str) -> str:
    return libm.call(f.e, name, "double", args)


def _erfinv(f: Ops, a: str) -> str:
    """Newton's steps from Winitzki's approximation; with erfc near 1, where erf has no digits left."""
    y = f.abs(a)
    log = _library(f, "log1p", f.neg(f.mul(y, y)))
    part = f.add(f.c(2 / (math.pi * 0.147)), f.mul(log, f.c(0.5)))
    root = f.e.call("sqrt", "double", f.sub(f.mul(part, part), f.div(log, f.c(0.147))))
    x = f.e.call("sqrt", "double", f.sub(root, part))
    for _ in range(5):
        slope = f.mul(f.c(2 / math.sqrt(math.pi)), _library(f, "exp", f.neg(f.mul(x, x))))
        near, far = f.sub(_library(f, "erf", x), y), f.sub(f.sub(f.c(1.0), y), _library(f, "erfc", x))
        error = f.pick(f.test("olt", y, f.c(0.5)), near, far)
        step = f.pick(f.test("ogt", slope, f.c(0.0)), f.div(error, slope), f.c(0.0))
        x = f.sub(x, f.div(step, f.fma(x, step, f.c(1.0))))
    x = f.pick(f.test("oeq", y, f.c(0.0)), f.c(0.0), x)
    x = f.pick(f.test("oeq", y, f.c(1.0)), f.c(math.inf), x)
    x = f.pick(f.test("ule", y, f.c(1.0)), x, f.c(math.nan))
    return f.sign(x, a)


def _of_pi(name: str, offset: float) -> Callable[[Ops, str], str]:
    """sin(pi * x) or cos(pi * x); the argument is cut to a turn, and halves are exact."""

    def emit(f: Ops, a: str) -> str:
        rest = _library(f, "fmod", a, f.c(2.0))
        place = f.add(rest, f.c(offset))
        value = _library(f, name, f.mul(rest, f.c(math.pi)))
        value = f.pick(f.test("oeq", place, f.e.call("floor", "double", place)), f.c(0.0), value)
        zero = f.sign(f.c(0.0), a) if offset == 0 else f.c(0.0)
        return f.pick(f.test("oeq", value, f.c(0.0)), zero, value)

    return emit


def _normal(f: Ops, x: str) -> str:
    return f.mul(_library(f, "erfc", f.div(f.neg(x), f.c(math.sqrt(2)))), f.c(0.5))


_DERIVED: dict[str, Callable[..., str]] = {
    "erfinv": _erfinv,
    "normcdf": _normal,
    "rcbrt": lambda f, x: f.div(f.c(1.0), _library(f, "cbrt", x)),
    "sinpi": _of_pi("sin", 0.0),
    "cospi": _of_pi("cos", 0.5),
}
