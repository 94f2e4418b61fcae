"""Functions: of float32 by polynomials of ours on whole vectors, or in float64 by the C library and rounded; of float64 by the C library.

The polynomials are fitted for the least largest relative error (Lawson's iteration), and all their sums are fma, so that every
instruction set gives the same bits. docs/semantics.md has the errors, tests/triton/codegen/test_math.py measures them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from . import libm
from .emit import Lanes

_LN2 = math.log(2)
_EXP = (0.4999999341246954, 0.16666520107626664, 0.04166839421745706, 0.00836878042907885, 0.0013814466737821214)
_EXP2 = (0.6931472031154879, 0.24022647880055398, 0.05550331853921391, 0.009618439848404036, 0.001339913260111629, 0.00015353153814052486)  # fmt: skip
_LOG = (0.33333212964308556, -0.2499979242830441, 0.20010609632399798, -0.16680759957554275, 0.14002128244371018, -0.1218000290736648, 0.1400461023773614, -0.12912241303453162)  # fmt: skip
_ERF = (0.12837916658026144, -0.37612633189867406, 0.11283687201847645, -0.026858942023877192, 0.005199907648976405, -0.0008130021636916125, 8.316806827327434e-05)  # fmt: skip
_LOG2_ERFC = (-1.6280968189239502, -0.9171660542488098, -0.15183572471141815, 0.03300674259662628, -0.00463293120265007, 0.0003080631431657821)  # fmt: skip
_TANH = (-0.3333332463363445, 0.13332983435676593, -0.05392095479167361, 0.021571061367039963, -0.007883311180814409, 0.0018956677527276608)  # fmt: skip
_SIN = (-0.16666666640588307, 0.008333329280534436, -0.00019839304417955088, 2.718046490828477e-06)
_COS = (0.0416666666191076, -0.001388888346731942, 2.4799451565981606e-05, -2.72050475523255e-07)
# log2((1 + s) / (1 - s)) / s in s * s, and 2 ** r, for float64 that is rounded to float32.
_LOG2_WIDE = (2.8853900817774267, 0.961796694825884, 0.5770777554444672, 0.412226186954296, 0.3192845895740929, 0.29083618083987456)  # fmt: skip
_EXP2_WIDE = (1.0000000005630547, 0.693147206037323, 0.2402264684486466, 0.05550328123613573, 0.00961849184021525, 0.0013400195537811243, 0.00015345580817605772)  # fmt: skip
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17)


def function(e: Lanes, name: str, base: str, values: Sequence[str]) -> str:
    """A function of numbers (``base`` "float" or "double"): a mathematical opcode, or a function of libdevice with float results."""
    if base == "float":
        if name in _FLOAT:
            return _FLOAT[name](e, *values)
        wider = [e.convert("fpext", "float", "double", value) for value in values]
        return e.convert("fptrunc", "double", "float", _double(e, name, wider))
    return _double(e, name, values)


def _double(e: Lanes, name: str, values: Sequence[str]) -> str:
    if name in _DOUBLE:
        return _DOUBLE[name](e, *values)
    return libm.call(e, name, "double", values)


class Ops:
    """Arithmetic of one float type in few words."""

    def __init__(self, e: Lanes, base: str) -> None:
        self.e, self.base = e, base
        self.bits = {"float": "i32", "double": "i64"}[base]

    def c(self, value: float) -> str:
        """A constant, in every lane."""
        return self.e.const(self.base, value)

    def fma(self, a: str, b: str, c: str) -> str:
        """a * b + c, rounded once."""
        return self.e.call("fma", self.base, a, b, c)

    def mul(self, a: str, b: str) -> str:
        """a * b."""
        return self.e.binary("fmul", self.base, a, b)

    def add(self, a: str, b: str) -> str:
        """a + b."""
        return self.e.binary("fadd", self.base, a, b)

    def sub(self, a: str, b: str) -> str:
        """a - b."""
        return self.e.binary("fsub", self.base, a, b)

    def div(self, a: str, b: str) -> str:
        """a / b."""
        return self.e.binary("fdiv", self.base, a, b)

    def neg(self, a: str) -> str:
        """-a: the sign turned, of a NaN too."""
        return self.e.op(f"fneg {self.e.type(self.base)} {a}")

    def abs(self, a: str) -> str:
        """a without its sign."""
        return self.e.call("fabs", self.base, a)

    def sign(self, magnitude: str, sign: str) -> str:
        """The magnitude of one value with the sign of another."""
        return self.e.call("copysign", self.base, magnitude, sign)

    def test(self, predicate: str, a: str, b: str) -> str:
        """A comparison by LLVM's predicate: ``olt``, ``uno`` and kin."""
        return self.e.compare(f"fcmp {predicate}", self.base, a, b)

    def pick(self, condition: str, a: str, b: str) -> str:
        """a where the condition holds, b elsewhere."""
        return self.e.select(condition, self.base, a, b)

    def clamp(self, a: str, low: float, high: float) -> str:
        """NaN stays NaN."""
        a = self.pick(self.test("olt", a, self.c(low)), self.c(low), a)
        return self.pick(self.test("ogt", a, self.c(high)), self.c(high), a)

    def poly(self, x: str, coefficients: Sequence[float]) -> str:
        """Horner's scheme; the coefficients ascend."""
        total = self.c(coefficients[-1])
        for one in coefficients[-2::-1]:
            total = self.fma(total, x, self.c(one))
        return total

    def to_bits(self, a: str) -> str:
        """The bits, as an integer of the same width."""
        return self.e.convert("bitcast", self.base, self.bits, a)

    def from_bits(self, a: str) -> str:
        """The float of these bits."""
        return self.e.convert("bitcast", self.bits, self.base, a)

    def whole(self, a: str) -> str:
        """A float that is an integer, as i32; NaN gives 0."""
        return self.e.convert("fptosi", self.base, "i32", self.pick(self.test("ord", a, a), a, self.c(0.0)))

    def scale(self, a: str, n: str) -> str:
        """a * 2 ** n of float32 for n from -252 to 252, rounded once: in two steps, of which the first is exact."""
        half = self.e.binary("ashr", "i32", n, self.e.const("i32", 1))
        rest = self.e.binary("sub", "i32", n, half)
        for part in (half, rest):
            biased = self.e.binary("add", "i32", part, self.e.const("i32", 127))
            a = self.mul(a, self.from_bits(self.e.binary("shl", "i32", biased, self.e.const("i32", 23))))
        return a


def _split(value: float, bits: int) -> tuple[float, float]:
    """A number of few bits, and the rest: products of the first with small integers are exact."""
    mantissa, exponent = math.frexp(value)
    high = math.ldexp(math.floor(math.ldexp(mantissa, bits)), exponent - bits)
    return high, value - high


def _exp(e: Lanes, x: str, low: bool = True) -> str:
    """``low``: whether x may be less than -100."""
    f = Ops(e, "float")
    x, above = _limited(f, x, -104.0 if low else None, 150.0)
    n = e.call("rint", "float", f.mul(x, f.c(1 / _LN2)))
    high_part, low_part = _split(_LN2, 16)
    r = f.fma(n, f.c(-low_part), f.fma(n, f.c(-high_part), x))
    p = f.add(f.fma(f.poly(r, _EXP), f.mul(r, r), r), f.c(1.0))
    return _power(f, p, n, above)


def _exp2(e: Lanes, x: str) -> str:
    f = Ops(e, "float")
    x, above = _limited(f, x, -150.0, 200.0)
    n = e.call("rint", "float", x)
    r = f.sub(x, n)
    return _power(f, f.fma(f.poly(r, _EXP2), r, f.c(1.0)), n, above)


def _limited(f: Ops, x: str, low: float | None, high: float) -> tuple[str, str]:
    """x with its limits, and where the power is not 0: AVX-512 skips the other lanes, in which it would take the time of 50 instructions."""
    x = f.pick(f.test("ogt", x, f.c(high)), f.c(high), x)
    if low is None:
        return x, ""
    if f.e.whole_register:
        return x, f.test("ugt", x, f.c(low))
    low -= 50.0  # far from denormals, which are slow too
    return f.pick(f.test("olt", x, f.c(low)), f.c(low), x), ""


def _power(f: Ops, p: str, n: str, above: str = "") -> str:
    """p * 2 ** n for n of a float type, rounded once: an instruction of AVX-512, or two products; 0 where ``above`` is given and false."""
    e = f.e
    if e.whole_register:
        type = e.type("float")
        mask = e.op(f"bitcast {e.type('i1')} {above} to i16") if above else "-1"
        return e.op(
            f"call {type} @llvm.x86.avx512.mask.scalef.ps.512({type} {p}, {type} {n}, {type} zeroinitializer, i16 {mask}, i32 4)"
        )
    return f.scale(p, f.whole(n))


def _log_of(base_high: float, base_low: float, unit: float) -> Callable[[Lanes, str], str]:
    """The logarithm that is (base_high + base_low) * ln x; ``unit`` is that of 2."""

    def emit(e: Lanes, x: str) -> str:
        f = Ops(e, "float")
        tiny = f.test("olt", x, f.c(2.0**-126))
        normal = f.pick(tiny, f.mul(x, f.c(2.0**23)), x)
        bits = f.to_bits(normal)
        # The mantissa goes from 2/3 to 4/3.
        offset = e.const("i32", 0x3F2AAAAB)
        exponent = e.binary("ashr", "i32", e.binary("sub", "i32", bits, offset), e.const("i32", 23))
        m = f.from_bits(e.binary("sub", "i32", bits, e.binary("shl", "i32", exponent, e.const("i32", 23))))
        n = e.convert("sitofp", "i32", "float", exponent)
        n = f.sub(n, f.pick(tiny, f.c(23.0), f.c(0.0)))
        r = f.sub(m, f.c(1.0))
        square = f.mul(r, r)
        rest = f.mul(square, f.fma(r, f.poly(r, _LOG), f.c(-0.5)))
        high, low = _split(unit, 14)
        if base_low:
            small = f.fma(r, f.c(base_low), f.mul(rest, f.c(base_high)))
            small = f.fma(n, f.c(low), small) if low else small
            whole = f.mul(n, f.c(high))  # exact
            y = f.fma(r, f.c(base_high), whole)
            lost = f.fma(r, f.c(base_high), f.sub(whole, y))
            y = f.add(y, f.add(lost, small))
        else:
            y = f.fma(n, f.c(high), f.add(r, f.fma(n, f.c(low), rest)))
        y = f.pick(f.test("olt", x, f.c(math.inf)), y, x)  # infinity and NaN
        y = f.pick(f.test("olt", x, f.c(0.0)), f.c(math.nan), y)
        return f.pick(f.test("oeq", x, f.c(0.0)), f.c(-math.inf), y)

    return emit


def _erf(e: Lanes, x: str) -> str:
    """Near 0 a polynomial; far from it 1 - erfc, whose logarithm is one."""
    f = Ops(e, "float")
    t = f.abs(x)
    near = f.fma(f.poly(f.mul(x, x), _ERF), x, x)
    t = f.pick(f.test("ogt", t, f.c(4.0)), f.c(4.0), t)
    first, more = f.c(_LOG2_ERFC[0]), f.mul(f.poly(t, _LOG2_ERFC[1:]), t)
    n = e.call("rint", "float", f.mul(f.add(more, first), t))
    r = f.fma(more, t, f.fma(first, t, f.neg(n)))
    rest = _power(f, f.fma(f.poly(r, _EXP2), r, f.c(1.0)), n)
    far = f.sign(f.sub(f.c(1.0), rest), x)
    return f.pick(f.test("olt", t, f.c(0.925)), near, far)


def _tanh(e: Lanes, x: str) -> str:
    f = Ops(e, "float")
    t = f.abs(x)
    square = f.mul(x, x)
    near = f.sign(f.fma(f.mul(f.poly(square, _TANH), square), x, x), x)
    power = _exp(e, f.add(t, t), low=False)
    far = f.sign(f.sub(f.c(1.0), f.div(f.c(2.0), f.add(power, f.c(1.0)))), x)
    return f.pick(f.test("olt", t, f.c(0.65)), near, far)


def _rsqrt(base: str) -> Callable[[Lanes, str], str]:
    """A quotient and one of Newton's steps, whose remainder is exact."""

    def emit(e: Lanes, x: str) -> str:
        f = Ops(e, base)
        y = f.div(f.c(1.0), e.call("sqrt", base, x))
        product = f.mul(x, y)
        rest = f.fma(x, y, f.neg(product))
        error = f.sub(f.fma(f.neg(product), y, f.c(1.0)), f.mul(rest, y))
        better = f.fma(f.mul(y, f.c(0.5)), error, y)
        # Of 0 and infinity the remainder is NaN.
        return f.pick(f.test("ord", error, error), better, y)

    return emit


def _circle(cosine: bool) -> Callable[[Lanes, str], str]:
    """sin and cos of float32, in float64: after the reduction to a quarter turn only a few digits are needed."""

    def emit(e: Lanes, x: str) -> str:
        f, d = Ops(e, "float"), Ops(e, "double")
        limit = 2.0**30
        large = f.test("ogt", f.abs(x), f.c(limit))
        wide = e.convert("fpext", "float", "double", f.pick(large, f.c(0.0), x))
        n = e.call("rint", "double", d.mul(wide, d.c(2 / math.pi)))
        minus = d.neg(n)
        r = d.fma(minus, d.c(_HALF_PI[1]), d.fma(minus, d.c(_HALF_PI[0]), wide))
        square = d.mul(r, r)
        sine = d.fma(d.mul(d.poly(square, _SIN), square), r, r)
        cosine_of = d.fma(d.fma(d.poly(square, _COS), square, d.c(-0.5)), square, d.c(1.0))
        quarter = d.whole(n)
        if cosine:
            quarter = e.binary("add", "i32", quarter, e.const("i32", 1))
        odd = e.convert("trunc", "i32", "i1", quarter)
        value = e.convert("fptrunc", "double", "float", d.pick(odd, cosine_of, sine))
        turned = e.binary("shl", "i32", e.binary("and", "i32", quarter, e.const("i32", 2)), e.const("i32", 30))
        value = f.from_bits(e.binary("xor", "i32", f.to_bits(value), turned))
        if not cosine:
            value = f.pick(f.test("oeq", x, f.c(0.0)), x, value)  # the sign of 0 is lost above
        return _or_else(e, large, value, lambda: _by_library(e, "cos" if cosine else "sin", x))

    return emit


def _pow(e: Lanes, x: str, y: str) -> str:
    """2 ** (y * log2 |x|) in float64, whose digits are enough for the largest exponents; then the cases of C's pow."""
    f, d = Ops(e, "float"), Ops(e, "double")
    size, wide_y = f.abs(x), e.convert("fpext", "float", "double", y)
    bits = d.to_bits(e.convert("fpext", "float", "double", size))
    offset = e.const("i64", 0x3FE5555555555555)  # the mantissa goes from 2/3 to 4/3
    exponent = e.binary("ashr", "i64", e.binary("sub", "i64", bits, offset), e.const("i64", 52))
    m = d.from_bits(e.binary("sub", "i64", bits, e.binary("shl", "i64", exponent, e.const("i64", 52))))
    s = d.div(d.sub(m, d.c(1.0)), d.add(m, d.c(1.0)))
    whole = e.convert("sitofp", "i32", "double", e.convert("trunc", "i64", "i32", exponent))
    t = d.clamp(d.mul(wide_y, d.fma(s, d.poly(d.mul(s, s), _LOG2_WIDE), whole)), -200.0, 200.0)
    n = e.call("rint", "double", t)
    p = d.to_bits(d.poly(d.sub(t, n), _EXP2_WIDE))
    shift = e.binary("shl", "i64", e.convert("sext", "i32", "i64", d.whole(n)), e.const("i64", 52))
    value = e.convert("fptrunc", "double", "float", d.from_bits(e.binary("add", "i64", p, shift)))
    infinite, zero, one = f.c(math.inf), f.c(0.0), f.c(1.0)
    value = f.pick(f.test("oeq", size, one), one, value)
    value = f.pick(f.test("oeq", size, zero), f.pick(f.test("olt", y, zero), infinite, zero), value)
    value = f.pick(f.test("oeq", size, infinite), f.pick(f.test("olt", y, zero), zero, infinite), value)
    half = f.mul(y, f.c(0.5))
    odd = f.test("one", e.call("rint", "float", half), half)
    integer = f.test("oeq", e.call("rint", "float", y), y)
    negative = e.compare("icmp slt", "i32", f.to_bits(x), e.const("i32", 0))
    turned = e.binary("and", "i1", negative, e.binary("and", "i1", odd, integer))
    value = f.pick(turned, f.neg(value), value)
    # A negative number to a power that is no integer; 0 and infinity have one.
    bad = e.binary("and", "i1", f.test("olt", x, zero), f.test("one", e.call("rint", "float", y), y))
    bad = e.binary("and", "i1", bad, f.test("one", size, infinite))
    bad = e.binary("or", "i1", bad, f.test("uno", x, y))
    value = f.pick(bad, f.c(math.nan), value)
    always = e.binary("or", "i1", f.test("oeq", x, one), f.test("oeq", y, zero))
    return f.pick(always, one, value)


def _by_library(e: Lanes, name: str, x: str) -> str:
    wide = libm.call(e, name, "double", [e.convert("fpext", "float", "double", x)])
    return e.convert("fptrunc", "double", "float", wide)


def _or_else(e: Lanes, rare: str, value: str, slow: Callable[[], str]) -> str:
    """A float32, or what ``slow`` gives in the lanes where ``rare`` holds: its code is skipped if there are none."""
    place = e.function.alloca(e.type("float"))
    e.function.do(f"store {e.type('float')} {value}, ptr {place}")
    with e.function.when(e.any(rare)):
        chosen = e.select(rare, "float", slow(), value)
        e.function.do(f"store {e.type('float')} {chosen}, ptr {place}")
    return e.op(f"load {e.type('float')}, ptr {place}")


_FLOAT: dict[str, Callable[..., str]] = {
    "exp": _exp,
    "exp2": _exp2,
    "log": _log_of(1.0, 0.0, _LN2),
    "log2": _log_of(*_split(1 / _LN2, 24), 1.0),
    "log10": _log_of(*_split(1 / math.log(10), 24), math.log10(2)),
    "erf": _erf,
    "tanh": _tanh,
    "rsqrt": _rsqrt("float"),
    "sin": _circle(False),
    "cos": _circle(True),
    "pow": _pow,
}
_DOUBLE: dict[str, Callable[..., str]] = {"rsqrt": _rsqrt("double")}
