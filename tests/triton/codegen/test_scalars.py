"""Each operator's code against the interpreter's arithmetic, bit for bit: all operands of 8 bits, all single ones of 16, and many others."""

import functools
import itertools

import numpy as np
import pytest

from tests.triton.codegen.arrays import ISAS, Operators, assert_same_bits
from torch_accel.triton.codegen import scalars
from torch_accel.triton.interpret import arithmetic
from torch_accel.triton.ir.floats import encode, storage
from torch_accel.triton.ir.opcodes import CASTS, ELEMENTWISE, FLOAT_PREDICATES, INT_PREDICATES
from torch_accel.triton.ir.types import F64, FLOAT_WIDTHS, I1, I64, Ptr, Scalar

INTS = [Scalar(f"i{width}") for width in (1, 8, 16, 32, 64)]
FLOATS = [Scalar(name) for name in FLOAT_WIDTHS]
FUNCTIONS = ("exp", "exp2", "log", "log2", "sin", "cos", "erf", "rsqrt")  # test_math.py
EDGES = [0.0, 1.0, 0.5, 1.5, 2.0, 3.0, 0.1, 127.0, 127.5, 128.0, 255.5, 256.0, 448.0, 464.0, 465.0, 57344.0, 61440.0, 65504.0, 65519.0,
         65520.0, 2.0**31, 2.0**31 - 1, 2.0**32, 2.0**63, 2.0**64, 1e30, 1e300, 1e-3, 2.0**-14, 2.0**-24, 2.0**-25, 2.0**-126, 2.0**-133,
         2.0**-149, 2.0**-150, 5e-324, 3.3895313892515355e38, 3.5e38, np.inf, np.nan]  # fmt: skip


@functools.cache
def pool(elem):
    """Elements of a type: all there are of up to 16 bits, else edges and numbers of all magnitudes."""
    if elem.width <= 16:
        count = 1 << elem.width
        return (
            np.arange(count, dtype=f"uint{max(elem.width, 8)}").astype(f"uint{max(elem.width, 8)}").view(storage(elem))
        )
    rng = np.random.default_rng(elem.width)
    patterns = (
        rng.integers(0, 1 << elem.width, 3000, dtype=np.uint64, endpoint=False) if elem.width < 64 else rng.bytes(24000)
    )
    some = np.frombuffer(patterns, np.uint64) if elem.width == 64 else patterns.astype(np.uint32)
    if elem.is_float:
        edges = np.array([*EDGES, *(-np.array(EDGES))])
        near = encode(elem, edges)
        around = [near, np.nextafter(near, storage(elem).type(0)), np.nextafter(near, storage(elem).type(np.inf))]
        usual = rng.normal(size=3000) * np.exp2(rng.integers(-30, 40, 3000))
        return np.concatenate([*around, encode(elem, usual), some.view(storage(elem))])
    edges = [
        0,
        1,
        2,
        3,
        7,
        elem.width - 1,
        elem.width,
        elem.width + 1,
        255,
        1 << 16,
        1 << (elem.width - 2),
        (1 << (elem.width - 1)) - 1,
    ]
    both = np.array([v & (1 << elem.width) - 1 for edge in edges for v in (edge, -edge, ~edge)], np.uint64).astype(
        some.dtype
    )
    small = rng.integers(-20, 20, 500).astype(np.int64).astype(some.dtype)
    return np.concatenate([both, some, small]).view(storage(elem))


@functools.cache
def tuples(elem, count):
    """Operands: all pairs where there are few, else edges with edges and a random choice."""
    values = pool(elem)
    if count == 1:
        return [values]
    if elem.width <= 8 and count == 2:
        return [np.ascontiguousarray(side.reshape(-1)) for side in np.meshgrid(values, values)]
    rng = np.random.default_rng(count)
    if elem.width <= 16:
        specials = np.unique(rng.choice(values.size, 120, replace=elem.width < 8))
        specials = values[np.unique(np.concatenate([specials, [0, 1, values.size // 2, values.size - 1]]))]
    else:
        specials = values[:90]
    crossed = np.array(list(itertools.product(range(specials.size), repeat=min(count, 2))))
    sides = [specials[crossed[:, min(at, 1)]] for at in range(count)]
    return [np.concatenate([side, rng.choice(values, 20000)]) for side in sides]


def exact_opcodes():
    for elem in (*INTS, *FLOATS):
        for opcode, (count, kind) in ELEMENTWISE.items():
            if kind == ("float" if elem.is_float else "int") and opcode not in FUNCTIONS:
                yield elem, opcode, count


@functools.cache
def elementwise(isa):
    """All exact opcodes of all types, compiled."""

    def emit(opcode, elem):
        return lambda e, *args: scalars.elementwise(e, opcode, elem, list(args))

    return Operators(
        {f"{opcode}.{elem}": ([elem] * count, elem, emit(opcode, elem)) for elem, opcode, count in exact_opcodes()}, isa
    )


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("elem", [*INTS, *FLOATS], ids=str)
def test_elementwise(isa, elem):
    for one, opcode, count in exact_opcodes():
        if one != elem:
            continue
        given = tuples(elem, count)
        if opcode == "fma" and elem == F64:  # the interpreter calls the C library's for each
            given = [side[:6000] for side in given]
        with np.errstate(all="ignore"):
            want = arithmetic.elementwise(opcode, elem, *given)
        try:
            assert_same_bits(elem, elementwise(isa)(f"{opcode}.{elem}", *given), want, *given)
        except AssertionError as error:
            raise AssertionError(f"{opcode}: {error}") from None


@functools.cache
def compares(isa):
    def emit(predicate, elem):
        return lambda e, a, b: scalars.compare(e, predicate, elem, a, b)

    known = {elem: FLOAT_PREDICATES if elem.is_float else INT_PREDICATES for elem in (*INTS, *FLOATS)}
    return Operators(
        {f"{p}.{elem}": ([elem, elem], I1, emit(p, elem)) for elem, all in known.items() for p in all}, isa
    )


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("elem", [*INTS, *FLOATS], ids=str)
def test_compare(isa, elem):
    given = tuples(elem, 2)
    for predicate in FLOAT_PREDICATES if elem.is_float else INT_PREDICATES:
        want = arithmetic.compare(predicate, elem, *given)
        assert_same_bits(I1, compares(isa)(f"{predicate}.{elem}", *given), want, *given)


def known_casts():
    groups = {"int": INTS, "float": FLOATS}
    for kind, (old_kind, new_kind) in CASTS.items():
        for old, new in itertools.product(groups[old_kind], groups[new_kind]):
            if old == new or (old_kind == new_kind == "int" and (new.width > old.width) != (kind != "trunci")):
                continue
            yield kind, old, new, "rtne"
            if kind == "float" and new.width < old.width:
                yield kind, old, new, "rtz"


@functools.cache
def casts(isa):
    def emit(kind, old, new, rounding):
        return lambda e, value: scalars.cast(e, kind, old, new, value, rounding)

    return Operators({".".join(map(str, one)): ([one[1]], one[2], emit(*one)) for one in known_casts()}, isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("old", [*INTS, *FLOATS], ids=str)
def test_cast(isa, old):
    for kind, source, new, rounding in known_casts():
        if source != old:
            continue
        with np.errstate(all="ignore"):
            want = arithmetic.cast(kind, old, new, pool(old), rounding)
        try:
            assert_same_bits(new, casts(isa)(f"{kind}.{old}.{new}.{rounding}", pool(old)), want, pool(old))
        except AssertionError as error:
            raise AssertionError(f"{kind} to {new}, {rounding}: {error}") from None


def test_select_and_bitcast_keep_all_bits():
    nans = np.array([0x7F800001, 0xFFC12345, 0x7FC00000, 1], np.uint32).view(np.float32)
    small, half = Scalar("f8e4m3fnuz"), Scalar("bf16")
    code = Operators(
        {
            "select": ([I1, Scalar("f32"), Scalar("f32")], Scalar("f32"), lambda e, go, a, b: scalars.select(e, Scalar("f32"), go, a, b)),
            "bits": ([Scalar("f32")], Scalar("i32"), lambda e, a: scalars.bitcast(e, Scalar("f32"), Scalar("i32"), a)),
            "small": ([small], Scalar("i8"), lambda e, a: scalars.bitcast(e, small, Scalar("i8"), a)),
            "half": ([half], Scalar("f16"), lambda e, a: scalars.bitcast(e, half, Scalar("f16"), a)),
        },
        "host",
    )  # fmt: skip
    go = np.array([True, False, True, False])
    assert (
        code("select", go, nans, nans[::-1].copy()).view(np.uint32).tolist()
        == nans.view(np.uint32)[[0, 2, 2, 0]].tolist()
    )
    assert code("bits", nans).tolist() == nans.view(np.int32).tolist()
    assert code("small", pool(small)).tobytes() == pool(small).tobytes()
    assert code("half", pool(half)).tobytes() == pool(half).tobytes()


@pytest.mark.parametrize("lanes", [0, 4])
def test_single_elements_and_short_vectors(lanes):
    """The same code on other widths; addresses wrap."""
    pointer = Ptr(Scalar("f32"))
    make = {
        "addptr": ([I64, I64], I64, lambda e, a, b: scalars.elementwise(e, "addptr", pointer, [a, b])),
        "div": ([INTS[2]] * 2, INTS[2], lambda e, *args: scalars.elementwise(e, "divsi", INTS[2], list(args))),
        "rem": ([F64] * 2, F64, lambda e, *args: scalars.elementwise(e, "remf", F64, list(args))),
        "cast": ([F64], Scalar("f8e5m2"), lambda e, a: scalars.cast(e, "float", F64, Scalar("f8e5m2"), a)),
    }
    code = Operators(make, "host", lanes)
    addresses, index = pool(I64)[:90], pool(I64)[90:180]
    with np.errstate(all="ignore"):
        assert_same_bits(I64, code("addptr", addresses, index), addresses + 4 * index, addresses, index)
        for name, opcode, elem in (("div", "divsi", INTS[2]), ("rem", "remf", F64)):
            given = [side[:3000] for side in tuples(elem, 2)]
            assert_same_bits(elem, code(name, *given), arithmetic.elementwise(opcode, elem, *given), *given)
        want = arithmetic.cast("float", F64, Scalar("f8e5m2"), pool(F64))
        assert_same_bits(Scalar("f8e5m2"), code("cast", pool(F64)), want, pool(F64))
