"""The float formats in registers: the LLVM type of each, widened to float32 for arithmetic, and rounded back.

bf16 and the 8-bit floats are kept as their bits: LLVM's own bf16 is converted by an instruction that flushes denormals.
"""

from __future__ import annotations

from ..ir.floats import SMALL
from ..ir.types import Ptr, Scalar, Type
from .emit import Lanes

_FLOAT_BASES = {"f64": "double", "f32": "float", "f16": "half", "bf16": "i16"}


def base(elem: Type) -> str:
    """The LLVM type of an element in a register: an address is an i64."""
    if isinstance(elem, Ptr):
        return "i64"
    assert isinstance(elem, Scalar)
    return _FLOAT_BASES.get(elem.name, "i8") if elem.is_float else elem.name


def wide(elem: Scalar) -> str:
    """The LLVM type that arithmetic on a float is done in."""
    return "double" if elem.name == "f64" else "float"


def decode(e: Lanes, elem: Scalar, value: str) -> str:
    """A stored float as float32, exactly; a float64 stays one."""
    if elem.name in ("f64", "f32"):
        return value
    if elem.name == "f16":
        return e.convert("fpext", "half", "float", value)
    if elem.name == "bf16":
        bits = e.binary("shl", "i32", e.convert("zext", "i16", "i32", value), e.const("i32", 16))
        return e.convert("bitcast", "i32", "float", bits)
    if elem.name == "f8e5m2":  # the upper half of a float16
        bits = e.binary("shl", "i16", e.convert("zext", "i8", "i16", value), e.const("i16", 8))
        return e.convert("fpext", "half", "float", e.convert("bitcast", "i16", "half", bits))
    _, mantissa, bias = SMALL[elem.name]
    code = e.convert("zext", "i8", "i32", value)
    magnitude = e.binary("and", "i32", code, e.const("i32", 127))
    placed = e.binary("shl", "i32", magnitude, e.const("i32", 23 - mantissa))
    # The number's exponent has another bias, and denormals are to be normalised: a product does both.
    number = e.binary(
        "fmul", "float", e.convert("bitcast", "i32", "float", placed), e.const("float", 2.0 ** (127 - bias))
    )
    sign = e.binary("shl", "i32", e.binary("and", "i32", code, e.const("i32", 128)), e.const("i32", 24))
    bits = e.binary("or", "i32", e.convert("bitcast", "float", "i32", number), sign)
    fnuz = elem.name.endswith("fnuz")
    tested, nan = (code, 128) if fnuz else (magnitude, 127)
    is_nan = e.compare("icmp eq", "i32", tested, e.const("i32", nan))
    return e.convert("bitcast", "i32", "float", e.select(is_nan, "i32", e.const("i32", 0x7FC00000), bits))


def encode(e: Lanes, elem: Scalar, value: str, rounding: str = "rtne", source: str = "") -> str:
    """A number (of type ``source``: float or double; ``wide(elem)`` if not given) as a stored float, rounded once."""
    source = source or wide(elem)
    if elem.name == "f64":
        return e.convert("fpext", source, "double", value)
    if elem.name == "f32":
        if source == "float":
            return value
        near = e.convert("fptrunc", "double", "float", value)
        return _toward_zero(e, "double", value, "float", "i32", near) if rounding == "rtz" else near
    if source == "double":
        value = narrow_to_odd(e, value)
    if elem.name == "f16":
        near = e.convert("fptrunc", "float", "half", value)
        return _toward_zero(e, "float", value, "half", "i16", near) if rounding == "rtz" else near
    return _encode_bf16(e, value, rounding) if elem.name == "bf16" else _encode_small(e, elem.name, value, rounding)


def narrow_to_odd(e: Lanes, value: str) -> str:
    """float64 to float32, where an inexact result gets an odd last bit: a later rounding to fewer bits is then the only one."""
    near = e.convert("fptrunc", "double", "float", value)
    cut = _toward_zero(e, "double", value, "float", "i32", near)
    back = e.convert("fpext", "float", "double", cut)
    inexact = e.compare("fcmp one", "double", back, value)
    bits = e.convert("bitcast", "float", "i32", cut)
    odd = e.binary("or", "i32", bits, e.convert("zext", "i1", "i32", inexact))
    return e.convert("bitcast", "i32", "float", odd)


def _toward_zero(e: Lanes, wide: str, value: str, narrow: str, bits: str, near: str) -> str:
    """The nearest number, or the one before it where that is larger in magnitude than the value."""
    back = e.call("fabs", wide, e.convert("fpext", narrow, wide, near))
    away = e.compare("fcmp ogt", wide, back, e.call("fabs", wide, value))
    stepped = e.binary("sub", bits, e.convert("bitcast", narrow, bits, near), e.convert("zext", "i1", bits, away))
    return e.convert("bitcast", bits, narrow, stepped)


def _encode_bf16(e: Lanes, value: str, rounding: str) -> str:
    bits = e.convert("bitcast", "float", "i32", value)
    upper = e.binary("lshr", "i32", bits, e.const("i32", 16))
    rounded = upper
    if rounding == "rtne":
        odd = e.binary("and", "i32", upper, e.const("i32", 1))
        up = e.binary("add", "i32", e.binary("add", "i32", bits, e.const("i32", 0x7FFF)), odd)
        rounded = e.binary("lshr", "i32", up, e.const("i32", 16))
    quiet = e.binary("or", "i32", upper, e.const("i32", 0x40))
    nan = e.compare("fcmp uno", "float", value, value)
    return e.convert("trunc", "i32", "i16", e.select(nan, "i32", quiet, rounded))


def _encode_small(e: Lanes, name: str, value: str, rounding: str) -> str:
    _, mantissa, bias = SMALL[name]
    cut = 23 - mantissa
    bits = e.convert("bitcast", "float", "i32", value)
    magnitude = e.binary("and", "i32", bits, e.const("i32", 0x7FFFFFFF))
    number = e.convert("bitcast", "i32", "float", magnitude)
    up = magnitude
    if rounding == "rtne":
        odd = e.binary("and", "i32", e.binary("lshr", "i32", magnitude, e.const("i32", cut)), e.const("i32", 1))
        half = e.binary("add", "i32", magnitude, e.const("i32", (1 << cut - 1) - 1))
        up = e.binary("add", "i32", half, odd)
    normal = e.binary(
        "sub", "i32", e.binary("lshr", "i32", up, e.const("i32", cut)), e.const("i32", (127 - bias) << mantissa)
    )
    # Below the least normal number the codes are equally far apart: counted by a product, and by a sum that rounds.
    scaled = e.binary("fmul", "float", number, e.const("float", 2.0 ** (bias + mantissa - 1)))
    small = e.call("rint" if rounding == "rtne" else "trunc", "float", scaled)
    least = e.const("float", 2.0 ** (1 - bias))
    below = e.compare("fcmp olt", "float", number, least)
    kept = e.select(below, "float", small, e.const("float", 0.0))
    code = e.select(below, "i32", e.convert("fptoui", "float", "i32", kept), normal)
    most = {"f8e5m2": 0x7B, "f8e4m3fn": 0x7E}.get(name, 0x7F)
    top = {"f8e5m2": 0x7C, "f8e4m3fn": 0x7E}.get(name, 0x80)
    over = e.compare("icmp sgt", "i32", code, e.const("i32", most))
    if rounding == "rtz":  # only infinity is too large
        code = e.select(over, "i32", e.const("i32", most), code)
        over = e.compare("icmp eq", "i32", magnitude, e.const("i32", 0x7F800000))
    code = e.select(over, "i32", e.const("i32", top), code)
    nan = e.compare("fcmp uno", "float", value, value)
    sign = e.binary("and", "i32", e.binary("lshr", "i32", bits, e.const("i32", 24)), e.const("i32", 128))
    if name.endswith("fnuz"):  # neither -0 nor a negative NaN
        code = e.select(nan, "i32", e.const("i32", 128), code)
        zero = e.compare("icmp eq", "i32", code, e.const("i32", 0))
        sign = e.select(zero, "i32", code, sign)
    else:
        code = e.select(nan, "i32", e.const("i32", 127), code)
    return e.convert("trunc", "i32", "i8", e.binary("or", "i32", code, sign))
