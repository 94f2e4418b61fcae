"""How far the functions are from the exact value, in units of the last place of the result, against NumPy's float64 and longdouble."""

import functools
import math

import numpy as np
import pytest

from tests.triton.codegen.accuracy import EXACT, compiled, grid, known, ulps, worst
from tests.triton.codegen.arrays import ISAS, Operators, assert_same_bits
from torch_accel.triton.codegen import extern, scalars
from torch_accel.triton.codegen import math as functions
from torch_accel.triton.interpret import arithmetic
from torch_accel.triton.interpret import extern as oracle
from torch_accel.triton.ir.extern import FUNCTIONS
from torch_accel.triton.ir.floats import storage
from torch_accel.triton.ir.types import F32, F64, I32, I64, Scalar

# Of the library's table; the square root is an instruction too.
OTHER = [name for name in FUNCTIONS if name not in EXACT or name == "sqrt"]


def test_page_has_every_polynomial():
    assert set(known()) == set(EXACT)
    assert max(known().values()) <= 1.5


@pytest.mark.parametrize("name", EXACT)
def test_float32(name):
    """At most what the page says, and the page says no more than 0.1 too much: it has seen more numbers than this grid."""
    error, at = worst(name, grid())
    bound = known()[name]
    remedy = "python -m tests.triton.codegen.accuracy --write"
    assert bound - 0.1 <= error <= bound, f"{error} at {at!r}, and the page says {bound}; if that is meant: {remedy}"


@pytest.mark.parametrize("name", EXACT)
def test_same_bits_on_every_isa(name):
    assert_same_bits(F32, *(compiled(isa, F32)(name, grid()) for isa in ISAS), grid())


@pytest.mark.parametrize("name", EXACT)
def test_float64(name):
    rng = np.random.default_rng(1)
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 1e308, 1.0, -1.0]
    x = np.concatenate([rng.normal(size=4000) * np.exp2(rng.integers(-40, 9, 4000)), special])
    with np.errstate(all="ignore"):
        want = EXACT[name](x if name == "erf" else x.astype(np.longdouble))
    assert ulps(compiled("host", F64)(name, x), want, 53, -1074).max() <= 2


@pytest.mark.parametrize("elem", ["f16", "bf16", "f8e5m2", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2fnuz"])
def test_small_floats(elem):
    """All operands there are: the float32 result is rounded a second time, which may give the neighbour of the nearest number."""
    elem = Scalar(elem)
    x = np.arange(1 << elem.width, dtype=f"uint{elem.width}").view(storage(elem))
    names = [name for name in EXACT if name not in ("tanh", "log10")]
    code = Operators(
        {name: ([elem], elem, lambda e, v, name=name: scalars.elementwise(e, name, elem, [v])) for name in names},
        "host",
    )
    for name in names:
        with np.errstate(all="ignore"):
            want = arithmetic.elementwise(name, elem, x)
        got = code(name, x)
        bits = [array.view(f"int{elem.width}").astype(np.int64) for array in (got, want)]
        number = ~np.isnan(np.asarray(arithmetic.decode(elem, want)))
        different = (bits[0] != bits[1]) & number
        assert np.abs(bits[0] - bits[1])[different].max(initial=0) <= 1, name
        assert different.sum() <= x.size // 2000, f"{name}: {different.sum()} of {x.size}"
        assert np.isnan(np.asarray(arithmetic.decode(elem, got)))[~number].all(), name


@pytest.mark.parametrize("isa", ISAS)
def test_pow(isa):
    """Of all magnitudes, with results of all exponents, and every pair of special operands."""
    rng = np.random.default_rng(2)
    x = np.concatenate([np.exp2(rng.uniform(-149, 128, 60_000)), rng.uniform(0.5, 2, 60_000)])
    y = rng.uniform(-151, 129, x.size) / np.log2(x)  # the result is 2 ** -151 to 2 ** 129
    whole = rng.integers(-40, 40, x.size)
    special = [
        0.0,
        -0.0,
        0.5,
        -0.5,
        1.0,
        -1.0,
        2.0,
        -2.0,
        3.0,
        -3.0,
        1e-45,
        -1e-45,
        1e30,
        -1e30,
        16777215.0,
        math.inf,
        -math.inf,
        math.nan,
    ]
    a, b = (side.reshape(-1) for side in np.meshgrid(special, special))
    x, y = (np.concatenate(sides).astype(np.float32) for sides in ((x, -x, a), (y, whole, b)))
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.float64), y.astype(np.float64))
    code = Operators({"pow": ([F32, F32], F32, lambda e, a, b: functions.function(e, "pow", "float", [a, b]))}, isa)
    error = ulps(code("pow", x, y), want)
    worst = int(error.argmax())
    assert error[worst] <= 0.6, f"{error[worst]} ulp at {x[worst]!r}, {y[worst]!r}"


def _types(name, elem):
    letters = {"f": elem, "i": I32, "l": I64}
    operands, result = FUNCTIONS[name]
    return [letters[letter] for letter in operands], letters[result]


@functools.cache
def others(isa, elem):
    def emit(name):
        return lambda e, *args: extern.call(e, name, elem, list(args))

    return Operators({name: (*_types(name, elem), emit(name)) for name in OTHER}, isa)


@pytest.mark.parametrize("elem", [F32, F64], ids=str)
@pytest.mark.parametrize("name", OTHER)
def test_other_functions(name, elem):
    """The interpreter's float64 values, rounded: to a unit in the last place in float32, and to a few in float64."""
    rng = np.random.default_rng(5)
    special = [
        0.0,
        -0.0,
        math.inf,
        -math.inf,
        math.nan,
        1.0,
        -1.0,
        0.5,
        -0.5,
        2.5,
        -2.5,
        1e-40,
        -1e-310,
        1e30,
        3e38,
        -170.5,
    ]
    x, y, z = (rng.normal(size=1500) * np.exp2(rng.integers(-6, 6, 1500)) for _ in range(3))
    pairs = np.array([(a, b) for a in special for b in special])
    given = {
        "f": iter([np.concatenate([v, s]).astype(storage(elem)) for v, s in ((x, pairs[:, 0]), (y, pairs[:, 1]), (z, pairs[:, 0]))]),
        "i": iter([np.concatenate([rng.integers(-40, 40, 1500), rng.integers(-1200, 1200, len(pairs))]).astype(np.int32)]),
    }  # fmt: skip
    args = [next(given[letter]) for letter in FUNCTIONS[name][0]]
    types, result = _types(name, elem)
    with np.errstate(all="ignore"):
        want = np.asarray(oracle.call(name, types, result, args))
    got = others("host", elem)(name, *args)
    if not result.is_float:
        assert_same_bits(result, got, want, *args)
        return
    # A gamma function near a pole, and its logarithm near 0, magnify the last bit of what they are given.
    loose = {"lgamma": 1e4, "tgamma": 64, "erfinv": 64, "pow": 4}.get(name, 4)
    digits, least = (24, -149) if elem == F32 else (53, -1074)
    assert ulps(got, want.astype(np.float64), digits, least).max() <= (1 if elem == F32 else loose)
