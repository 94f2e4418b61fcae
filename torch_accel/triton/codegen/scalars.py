"""The operators of ``ir.opcodes`` on stored elements, on vectors or single ones: what ``interpret.arithmetic`` computes.

Nothing traps and nothing is undefined, whatever the operands: masked lanes compute too.
"""

from __future__ import annotations

from ..ir.types import Ptr, Scalar, Type
from . import libm
from .emit import Lanes
from .formats import base, decode, encode, wide

_PLAIN = {"addi": "add", "subi": "sub", "muli": "mul", "andi": "and", "ori": "or", "xori": "xor"}
_EXTREME = {"minsi": "smin", "minui": "umin", "maxsi": "smax", "maxui": "umax"}
_SHIFTS = {"shli": "shl", "shrui": "lshr", "shrsi": "ashr"}
_ARITHMETIC = {"addf": "fadd", "subf": "fsub", "mulf": "fmul", "divf": "fdiv"}
_FLOAT_EXTREME = {"maximumf": "maximum", "minimumf": "minimum", "maxnumf": "maximumnum", "minnumf": "minimumnum"}
_RANGE = {"maxnumf": 5, "minnumf": 4}  # what AVX-512's instruction is told: which one, and that -0 is less than +0
_ROUNDED = {"floor": "floor", "ceil": "ceil", "sqrt": "sqrt"}


def elementwise(e: Lanes, opcode: str, elem: Type, args: list[str], contract: bool = False) -> str:
    """An opcode of ``opcodes.ELEMENTWISE``; an address's index is an i64 already."""
    if isinstance(elem, Ptr):
        assert isinstance(elem.elem, (Scalar, Ptr))
        step = e.binary("mul", "i64", args[1], e.const("i64", size(elem.elem)))
        return e.binary("add", "i64", args[0], step)
    assert isinstance(elem, Scalar)
    if elem.is_float:
        return _float(e, opcode, elem, args, contract)
    if opcode in _PLAIN:
        return e.binary(_PLAIN[opcode], elem.name, *args)
    if elem.name == "i1" and opcode not in _SHIFTS:
        return _of_bits(e, opcode, args)
    if opcode in _EXTREME:
        return e.call(_EXTREME[opcode], elem.name, *args)
    if opcode in _SHIFTS:
        return _shift(e, opcode, elem, *args)
    if opcode == "mulhiui":
        return _high(e, elem, *args)
    if opcode == "absi":
        return e.call("abs", elem.name, *args, extra="i1 false")
    return _divide(e, opcode, elem, *args)


def size(elem: Scalar | Ptr) -> int:
    """Bytes of an element in memory."""
    return 8 if isinstance(elem, Ptr) else max(1, elem.width // 8)


def _of_bits(e: Lanes, opcode: str, args: list[str]) -> str:
    """An i1 is computed as an i8 that holds 0 or -1 (or 1, where there is no sign), and cut."""
    if opcode == "mulhiui":
        return e.const("i1", 0)
    extend = "zext" if opcode.endswith("ui") else "sext"
    wider = [e.convert(extend, "i1", "i8", arg) for arg in args]
    return e.convert("trunc", "i8", "i1", elementwise(e, opcode, Scalar("i8"), wider))


def _shift(e: Lanes, opcode: str, elem: Scalar, value: str, amount: str) -> str:
    name, width = elem.name, elem.width
    fits = e.compare("icmp ult", name, amount, e.const(name, width))
    if opcode == "shrsi":
        return e.binary("ashr", name, value, e.select(fits, name, amount, e.const(name, width - 1)))
    return e.select(fits, name, e.binary(_SHIFTS[opcode], name, value, amount), e.const(name, 0))


def _high(e: Lanes, elem: Scalar, a: str, b: str) -> str:
    double = f"i{elem.width * 2}"
    product = e.binary("mul", double, *(e.convert("zext", elem.name, double, value) for value in (a, b)))
    upper = e.binary("lshr", double, product, e.const(double, elem.width))
    return e.convert("trunc", double, elem.name, upper)


def _divide(e: Lanes, opcode: str, elem: Scalar, a: str, b: str) -> str:
    """Divisors that could trap are replaced by 1, and their results put right."""
    name, signed = elem.name, opcode.endswith("si")
    zero = e.compare("icmp eq", name, b, e.const(name, 0))
    unsafe = zero
    if signed:
        minus = e.compare("icmp eq", name, b, e.const(name, -1))
        unsafe = e.binary("or", "i1", zero, minus)
    safe = e.select(unsafe, name, e.const(name, 1), b)
    quotient = _quotient(e, elem, a, safe, signed)
    if opcode.startswith("rem"):
        rest = e.binary("sub", name, a, e.binary("mul", name, quotient, safe))
        return e.select(zero, name, a, rest)  # by 1 the rest is 0, as it is by -1
    if signed:
        quotient = e.select(minus, name, e.binary("sub", name, e.const(name, 0), a), quotient)
    return e.select(zero, name, e.const(name, 0), quotient)


def _quotient(e: Lanes, elem: Scalar, a: str, b: str, signed: bool) -> str:
    """CPUs have no vectors of integer divisions; a float's quotient is right after it is cut if its mantissa has the operands' bits."""
    if elem.width == 64 or not e.count:
        return e.binary("sdiv" if signed else "udiv", elem.name, a, b)
    number = "double" if elem.width == 32 else "float"
    to, back = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
    ratio = e.binary("fdiv", number, *(e.convert(to, elem.name, number, value) for value in (a, b)))
    return e.convert(back, number, elem.name, ratio)


def _float(e: Lanes, opcode: str, elem: Scalar, args: list[str], contract: bool) -> str:
    if opcode == "fma" and elem.name not in ("f32", "f64"):
        return _small_fma(e, elem, args)
    number = wide(elem)
    values = [decode(e, elem, arg) for arg in args]
    if opcode in _ARITHMETIC:
        # A product that is rounded to fewer bits must not be fused before that.
        flag = " contract" if contract and elem.name in ("f32", "f64") else ""
        result = e.binary(_ARITHMETIC[opcode] + flag, number, *values)
    elif opcode == "remf":
        result = libm.call(e, "fmod" if number == "double" else "fmodf", number, values)
    elif opcode in _RANGE and number == "float" and e.whole_register:
        result = _range(e, _RANGE[opcode], *values)
    elif opcode in _FLOAT_EXTREME:
        result = e.call(_FLOAT_EXTREME[opcode], number, *values)
    elif opcode in _ROUNDED:
        result = e.call(_ROUNDED[opcode], number, *values)
    elif opcode == "absf":
        result = e.call("fabs", number, *values)
    elif opcode == "negf":
        result = e.op(f"fneg {e.type(number)} {values[0]}")
    elif opcode == "fma":
        result = e.call("fma", number, *values)
    else:
        from .math import function

        result = function(e, opcode, number, values)
    return encode(e, elem, result)


def _range(e: Lanes, which: int, a: str, b: str) -> str:
    """maxnumf or minnumf in an instruction, which gives NaN only for a signalling one: a canonical number is none."""
    type = e.type("float")
    a, b = (e.call("canonicalize", "float", value) for value in (a, b))
    given = f"{type} {a}, {type} {b}, i32 {which}, {type} zeroinitializer, i16 -1, i32 4"
    return e.op(f"call {type} @llvm.x86.avx512.mask.range.ps.512({given})")


def _small_fma(e: Lanes, elem: Scalar, args: list[str]) -> str:
    """Rounded once: the product is exact in float64, and the sum's last bit is made odd where it is not exact."""
    a, b, c = (e.convert("fpext", "float", "double", decode(e, elem, arg)) for arg in args)
    product = e.binary("fmul", "double", a, b)
    total = e.binary("fadd", "double", product, c)
    part = e.binary("fsub", "double", total, product)
    lost = e.binary("fsub", "double", product, e.binary("fsub", "double", total, part))
    error = e.binary("fadd", "double", lost, e.binary("fsub", "double", c, part))
    inexact = e.compare("fcmp one", "double", error, e.const("double", 0.0))  # infinities and NaN give NaN
    bits, error_bits = (e.convert("bitcast", "double", "i64", value) for value in (total, error))
    differ = e.compare("icmp slt", "i64", e.binary("xor", "i64", bits, error_bits), e.const("i64", 0))
    less = e.binary("sub", "i64", bits, e.convert("zext", "i1", "i64", differ))
    odd = e.binary("or", "i64", less, e.const("i64", 1))
    chosen = e.convert("bitcast", "i64", "double", e.select(inexact, "i64", odd, bits))
    return encode(e, elem, chosen, source="double")


def compare(e: Lanes, predicate: str, elem: Type, a: str, b: str) -> str:
    """A predicate of ``opcodes.INT_PREDICATES`` or ``FLOAT_PREDICATES``: an i1."""
    if isinstance(elem, Scalar) and elem.is_float:
        values = (decode(e, elem, a), decode(e, elem, b))
        return e.compare(f"fcmp {predicate}", wide(elem), *values)
    return e.compare(f"icmp {predicate}", base(elem), a, b)


def select(e: Lanes, elem: Type, go: str, a: str, b: str) -> str:
    """a where ``go`` holds, else b: all bits are kept."""
    return e.select(go, base(elem), a, b)


def bitcast(e: Lanes, old: Type, new: Type, value: str) -> str:
    """The same bits as another type."""
    return e.convert("bitcast", base(old), base(new), value)


def cast(e: Lanes, kind: str, old: Scalar, new: Scalar, value: str, rounding: str = "rtne") -> str:
    """A kind of ``opcodes.CASTS``."""
    if kind in ("extsi", "extui", "trunci"):
        name = {"extsi": "sext", "extui": "zext", "trunci": "trunc"}[kind]
        return e.convert(name, old.name, new.name, value)
    if kind in ("sitofp", "uitofp"):  # to a small format by way of float32, as torch does
        return encode(e, new, e.convert(kind, old.name, wide(new), value))
    if kind == "float":
        return encode(e, new, decode(e, old, value), rounding, wide(old))
    return saturate(e, wide(old), new, decode(e, old, value), kind == "fptosi")


def saturate(e: Lanes, number: str, new: Scalar, value: str, signed: bool) -> str:
    """Toward zero; too large numbers give the nearest integer there is, NaN gives 0.

    LLVM's own fptosi.sat takes vectors apart, so the limits are compared here.
    """
    least, most = (-(1 << new.width - 1), (1 << new.width - 1) - 1) if signed else (0, (1 << new.width) - 1)
    name = new.name if new.width >= 32 else "i32"
    zero = e.const(number, 0.0)
    ordered = e.compare("fcmp ord", number, value, value)
    low = e.compare("fcmp olt", number, value, e.const(number, float(least)))
    high = e.compare("fcmp oge", number, value, e.const(number, float(most + 1)))
    outside = e.binary("or", "i1", low, high)
    inside = e.select(
        e.binary("and", "i1", ordered, e.binary("xor", "i1", outside, e.const("i1", 1))), number, value, zero
    )
    # Unsigned numbers of fewer bits than name's are positive in it; those that round toward zero from below are 0.
    to = "fptosi" if signed or new.width < 32 else "fptoui"
    whole = e.convert(to, number, name, inside)
    whole = e.select(high, name, e.const(name, most), whole)
    whole = e.select(low, name, e.const(name, least), whole)
    return e.convert("trunc", name, new.name, whole)
