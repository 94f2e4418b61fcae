"""Accesses that leave the memory of their arguments: found in every form of access before they are made, and nothing else is."""

import functools
import re

import numpy as np
import pytest
import triton
import triton.language as tl
from expecttest import assert_expected_inline

from tests.triton.codegen.native import Kernel
from torch_accel.triton import codegen, frontend
from torch_accel.triton.codegen.context import OUT_OF_BOUNDS

COUNT = 24


def compiled(kernel, signature, constants=None):
    known = dict(part.split(":") for part in signature.split())
    types = {name: known.get(name, "constexpr") for name in kernel.arg_names}
    lowered = frontend.tile_ir(kernel, types, constants or {})
    return Kernel(lowered, kernel.fn.__name__, compile=functools.partial(codegen.compile_module, bounds=True))


@triton.jit
def neighbours(x, y, start, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.load(x + start + i, mask=i < n), mask=i < n)


@triton.jit
def whole(x, y, start, n, B: tl.constexpr):
    i = tl.arange(0, 16)
    tl.store(y + i, tl.load(x + start + i) + tl.load(x + start + n - 16 + i))


@triton.jit
def single(x, y, start, n, B: tl.constexpr):
    tl.store(y, tl.load(x + start))
    tl.store(y + 1, tl.load(x + start + n - 1))


@triton.jit
def single_for_a_vector(x, y, start, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.load(x + start + n - 1 + i * 0, mask=i < n) + tl.load(x + start), mask=i < n)


@triton.jit
def gathered(x, y, start, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.load(x + start + (i ^ 1), mask=(i ^ 1) < n), mask=i < n)


@triton.jit
def scattered(x, y, start, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x + start + (i ^ 3), tl.load(y + i, mask=i < n), mask=(i ^ 3) < n)


@triton.jit
def in_reverse(x, y, start, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x + start + n - 1 - i, i.to(x.dtype.element_ty), mask=i < n)


@triton.jit
def stored(x, y, start, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x + start + i, i.to(x.dtype.element_ty), mask=i < n)


@triton.jit
def summed(x, y, start, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y, tl.sum(tl.load(x + start + i, mask=i < n, other=0), 0))


@triton.jit
def turns(x, y, start, n, B: tl.constexpr):
    at = x + start
    total = 0.0
    for _ in range(n):
        total += tl.load(at).to(tl.float32)
        at += 1
    tl.store(y, total.to(y.dtype.element_ty))


@triton.jit(noinline=True)
def _read(at, n, B: tl.constexpr):
    i = tl.arange(0, B)
    return tl.sum(tl.load(at + i, mask=i < n, other=0), 0), at + n - 1


@triton.jit
def called(x, y, start, n, B: tl.constexpr):
    total, last = _read(x + start, n, B)
    tl.store(y, total + tl.load(last))


@triton.jit
def chosen(x, y, start, n, B: tl.constexpr):
    i = tl.arange(0, B)
    at = tl.where(i < B // 2, x, x + 0) + start + i
    tl.store(y + i, tl.load(at, mask=i < n), mask=i < n)


@triton.jit
def atomic(x, y, start, n, B: tl.constexpr):
    tl.atomic_add(x + start, 1)
    tl.atomic_add(x + start + n - 1, 1)


@triton.jit
def atomic_lanes(x, y, start, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.atomic_max(x + start + (i ^ 1), i, mask=(i ^ 1) < n)


@triton.jit
def exchanged(x, y, start, n, B: tl.constexpr):
    tl.atomic_cas(x + start, 0, 1)
    tl.atomic_cas(x + start + n - 1, 0, 1)


@triton.jit
def two(x, y, start, n, B: tl.constexpr):
    """Both arguments are the address's: what lies in neither is found, and the nearer one is named."""
    i = tl.arange(0, B)
    at = tl.where(i < 0, y, x) + start + i
    tl.store(at, i.to(x.dtype.element_ty), mask=i < n)


ANY = ("*i8", "*fp16", "*fp32", "*i64")
FORMS = {
    **dict.fromkeys((neighbours, gathered, scattered, stored), ANY),
    **dict.fromkeys((whole, single, single_for_a_vector, in_reverse, summed, turns, called, chosen, two), ("*fp32",)),
    **dict.fromkeys((atomic, atomic_lanes, exchanged), ("*i32",)),
}
DTYPES = {"*i8": np.int8, "*fp16": np.float16, "*fp32": np.float32, "*i32": np.int32, "*i64": np.int64}
FAR = (-(1 << 60), 1 << 60, -(1 << 40), 1 << 40)


@pytest.mark.parametrize(
    "kernel, type",
    [pytest.param(k, type, id=f"{k.fn.__name__}-{type[1:]}") for k, types in FORMS.items() for type in types],
)
def test_both_ends_of_the_memory(kernel, type):
    """``x`` lies in the middle of an array: what is beside it stays as it is."""
    code = compiled(kernel, f"x:{type} y:{type} start:i64 n:i32", {"B": 64})
    room = np.zeros(64 + COUNT + 64, DTYPES[type])
    x, size = room[64 : 64 + COUNT], room.itemsize

    def fault(start, n):
        room[:] = 3
        found = code.run((1,), [x, np.zeros(64, room.dtype), start, n], copy=list)[1]
        assert (room[:64] == 3).all() and (room[64 + COUNT :] == 3).all()
        return found

    assert fault(0, COUNT) is None
    assert fault(COUNT - 17, 17) is None
    for start, n, element in ((-1, COUNT, -1), (1, COUNT, COUNT), (0, COUNT + 1, COUNT)):
        found = fault(start, n)
        assert found.kind == OUT_OF_BOUNDS
        assert f"byte {element * size} of 'x', which has {COUNT * size} (element {element})" in found.text.decode()
    assert all(fault(start, COUNT) is not None for start in FAR)


@triton.jit
def elsewhere(table, x, out, address):
    """Addresses that are not arguments: from memory, from a number, and one that may be either."""
    loaded = tl.load(table).to(tl.pointer_type(tl.int32))
    made = address.to(tl.pointer_type(tl.int32))
    either = tl.where(tl.load(out) > 0, x, made)
    tl.store(out, tl.load(loaded) + tl.load(made) + tl.load(either + 100))


def test_other_addresses_are_not_checked():
    other = np.arange(200, dtype=np.int32)
    table = np.array([other[7:].ctypes.data])
    given = [table, np.zeros(1, np.int32), np.zeros(1, np.int32), other[20:].ctypes.data]
    (_, _, out, _), fault = compiled(elsewhere, "table:*i64 x:*i32 out:*i32 address:i64").run((1,), given)
    assert fault is None and out[0] == 7 + 20 + 120


@triton.jit
def by_program(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i), mask=i < n)


def test_the_text_and_the_place():
    code = compiled(by_program, "x:*fp64 out:*fp64 n:i32", {"B": 8})
    (_, out, _), fault = code.run((4,), [np.ones(20), np.zeros(20), 20])
    assert list(fault.program) == [2, 0, 0] and out.tolist() == [1] * 16 + [0] * 4
    assert code.compiled.locations[fault.site].line == by_program.starting_line_number + 3
    assert_expected_inline(
        re.sub("0x[0-9a-f]+", "ADDRESS", fault.text.decode()),
        "out of bounds: 8 bytes at ADDRESS: byte 160 of 'x', which has 160 (element 20)",
    )


@triton.jit
def tile(x, y, start, row, column, SUM: tl.constexpr):
    at = x + start + tl.arange(0, 4)[:, None] * row + tl.arange(0, 16)[None, :] * column
    if SUM:
        tl.store(y + tl.arange(0, 16), tl.sum(tl.load(at), 0))
    else:
        tl.store(at, tl.full((4, 16), 1, tl.float64))


@pytest.mark.parametrize("total", [True, False])
def test_tiles_of_any_strides(total):
    """Loops of which no address leaves are not checked lane by lane, so whether one leaves must be exact."""
    code = compiled(tile, "x:*fp64 y:*fp64 start:i64 row:i64 column:i64", {"SUM": total})
    y, seen = np.zeros(16), set()
    big = (1 << 41, 1 << 60, -(1 << 60), (1 << 61) + 1)
    for row, column in [(16, 1), (1, 4), (-16, 1), (16, -1), (-1, -4), (0, 0), *((b, 1) for b in big), (16, big[1])]:
        reach = [(m * row, n * column) for m in range(4) for n in range(16)]
        offsets = [(sum(pair) * 8 + (1 << 63)) % (1 << 64) - (1 << 63) for pair in reach]
        low, high = min(offsets) // 8, max(offsets) // 8
        for start in {-low, -low - 1, 100 - 1 - high, 100 - high, 0}:
            right = all(0 <= (start * 8 + offset) % (1 << 64) <= 99 * 8 for offset in offsets)
            _, fault = code.run((1,), [np.zeros(100), y, start, row, column])
            assert (fault is None) == right, (row, column, start)
            seen.add((right, abs(row) < 100))
    assert {(True, True), (False, True), (False, False)} <= seen
