"""Faults planted in the passes to the machine IR, one at a time: translation validation finds each.

Also the kernels that they need, which are right as they are: arguments that share memory, indices that wrap, tiles that a loop swaps.
"""

import numpy as np
import pytest
import triton
import triton.language as tl

from tests.triton.corpus import cases, modules
from torch_accel.triton import frontend
from torch_accel.triton.analysis import axis
from torch_accel.triton.analysis.order import Order
from torch_accel.triton.interpret.engine import KernelFault
from torch_accel.triton.interpret.memory import FIRST
from torch_accel.triton.interpret.validate import Miscompiled, validate
from torch_accel.triton.ir import reader
from torch_accel.triton.ir.core import IRError, Operation
from torch_accel.triton.passes import buffers, carried, full, fuse, guards, lanes, lower


@triton.jit
def copy(x, y, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.load(x + i) * 2)


@triton.jit
def doubled_rows(x, y, stride, M: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, M)[:, None] * stride + tl.arange(0, N)[None, :]
    tl.store(y + i, tl.load(x + i) * 2)


@triton.jit
def backwards(x, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x + (B - 1 - i), tl.load(x + i) + 1)


@triton.jit
def one_place(x, stride, B: tl.constexpr):
    i = tl.arange(0, B) * stride
    tl.store(x + i, tl.load(x + i) + tl.arange(0, B))


@triton.jit
def diagonals(x, stride, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    tl.store(x + (i + j * stride), i * N + j)


@triton.jit
def wrapping(x, y, start, B: tl.constexpr):
    """Lanes from 2 on have an index that wraps; the others are masked."""
    i = tl.arange(0, B)
    tl.store(y + i, tl.load(x + (start + i), mask=i >= 2))


@triton.jit
def modulo(x, y, start, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.load(x + (start + i) % n))


@triton.jit
def moving(x, y, n, step, B: tl.constexpr):
    p, i, total = x + tl.arange(0, B), tl.arange(0, B), tl.zeros([B], tl.int32)
    for _ in range(n):
        p += step
        total += tl.load(p) * i
        i += step + 1
        p += 1
    tl.store(y + tl.arange(0, B), total + tl.load(p) + i)


@triton.jit
def swapping(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    a, b, c = tl.load(x + i), tl.load(x + B + i), tl.load(x + 2 * B + i)
    for _ in range(n):
        a, b, c = b, a + c, a
    tl.store(y + i, a)
    tl.store(y + B + i, b)
    tl.store(y + 2 * B + i, c)


@triton.jit
def store_in_loop(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v, total = tl.load(x + i), 0
    for k in range(n):
        total += tl.sum(v * (k + 1))
        tl.store(x + i, i)
    tl.store(y, total)


@triton.jit
def between(x, y, start, low, high, B: tl.constexpr):
    """Whether all elements are wanted is seen at the first and the last one, unless an index wraps."""
    i = tl.arange(0, B)
    at = start + i
    tl.store(y + i, tl.load(x + i, mask=(at < high) & (low <= at), other=-1))


def ints(count):
    return np.arange(1, count + 1, dtype=np.int32)


# kernel, signature, constants, arguments; an int for a pointer is an address: the first array is at FIRST.
KERNELS = {
    "apart": (copy, "x:*i32 y:*i32", {"B": 8}, lambda: [ints(16), FIRST + 32]),
    "overlapping": (copy, "x:*i32 y:*i32", {"B": 8}, lambda: [ints(16), FIRST + 4]),
    "same": (copy, "x:*i32 y:*i32", {"B": 8}, lambda: [ints(16), FIRST]),
    **{
        f"rows {offset} apart, stride {stride}": (
            doubled_rows, "x:*i32 y:*i32 stride:i32", {"M": 4, "N": 8}, lambda o=offset, s=stride: [ints(100), FIRST + 4 * o, s],
        )
        for offset, stride in ((0, 8), (2, 10), (38, 10), (1, 0), (5, 3))
    },
    "rows the other way": (doubled_rows, "x:*i32 y:*i32 stride:i32", {"M": 4, "N": 8}, lambda: [FIRST + 8, ints(100), 10]),
    "backwards": (backwards, "x:*i32", {"B": 16}, lambda: [ints(16)]),
    "one place": (one_place, "x:*i32 stride:i32", {"B": 16}, lambda: [ints(16), 0]),
    "diagonals": (diagonals, "x:*i32 stride:i32", {"M": 8, "N": 4}, lambda: [ints(11), 1]),
    "wrapping": (wrapping, "x:*i32 y:*i32 start:i32", {"B": 8}, lambda: [FIRST + 4 * (1 << 31), ints(8), (1 << 31) - 2]),
    **{
        f"modulo {n} from {start}": (modulo, "x:*i32 y:*i32 start:i32 n:i32", {"B": 8}, lambda s=start, n=n: [ints(n), ints(8), s, n])
        for start, n in ((4, 20), (12, 20), (13, 20), (39, 20), (0, 3))
    },
    **{
        f"from {low} to {high}, at {start}": (
            between, "x:*i32 y:*i32 start:i32 low:i32 high:i32", {"B": 128}, lambda s=start, a=low, h=high: [ints(128), ints(128), s, a, h],
        )
        for start, low, high in ((0, 0, 128), (0, 0, 127), (0, 1, 128), (5, -8, 200), ((1 << 31) - 64, -(1 << 31), 10))
    },
    "moving": (moving, "x:*i32 y:*i32 n:i32 step:i32", {"B": 8}, lambda: [ints(64), ints(8), 5, 4]),
    "swapping": (swapping, "x:*i32 y:*i32 n:i32", {"B": 8}, lambda: [ints(24), ints(24), 5]),
    "store in a loop": (store_in_loop, "x:*i32 y:*i32 n:i32", {"B": 8}, lambda: [ints(8), ints(32), 3]),
}  # fmt: skip


def check(name):
    """Validates a kernel of ours or of the corpus."""
    if name not in KERNELS:
        case = cases()[name]
        return validate(modules(name)[0], case.kernel.fn.__name__, case.grid, case.arguments())
    kernel, signature, constants, arguments = KERNELS[name]
    known = dict(part.split(":") for part in signature.split())
    types = {one: known.get(one, "constexpr") for one in kernel.arg_names}
    return validate(reader.read(frontend.ttir(kernel, types, constants)), kernel.fn.__name__, (1,), arguments())


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_are_right(name):
    check(name)


def changed(rule, change):
    """A rule of an operation, given a copy of it that is changed."""

    def wrong(em, op, *rest):
        copy = Operation(op.name, op.operands, (), op.attributes, (), op.location, op.segments)
        copy.regions, copy.results, copy.parent = op.regions, op.results, op.parent
        change(copy)
        return rule(em, copy, *rest)

    return wrong


def cut(count, segments=None):
    def change(op):
        op.operands, op.segments = op.operands[:count], segments

    return change


def attributes(**new):
    return lambda op: op.attributes.update(new)


def turned(fn, op):
    source = op.regions[0].block
    half = len(source.arguments) // 2
    types = [value.type for value in source.arguments]
    return fn.body(types, lambda block: fn.inline(source, [*block.arguments[half:], *block.arguments[:half]]))


def stacked(self, value):
    self.live[value] = (0, value.type.bytes)
    self.size = max(self.size, value.type.bytes)
    return 0


PLANTED = {
    "no barrier between a load and its use": (Order, "between", lambda self, op, other: [], "store_then_load"),
    "no turns before": (Order, "deeper", lambda self, op, other: [], "store in a loop"),
    "no test of ranges": (guards, "_apart", lambda em, store, load: [], "overlapping"),
    "no test of ranges of rows": (guards, "_apart", lambda em, store, load: [], "rows 2 apart, stride 10"),
    "arguments never alias": (fuse.Plan, "may_alias", lambda self, a, b: False, "overlapping"),
    "a range without its strides": (guards, "_bounds", lambda em, offset, strides: (em.poly(offset),) * 2, "overlapping"),
    "all places are different": (lanes, "injective", lambda strides, sizes: True, "diagonals"),
    "all tests find all places different": (guards, "injective", lambda strides, sizes: True, "one place"),
    "nothing is read before the store": (guards, "exposed", lambda em, accesses: [], "overlapping"),
    "the same whatever the offset": (axis.Poly, "__eq__", lambda self, other: True, "backwards"),
    "no test of wrapping": (guards, "_fits", lambda em, one: [], "wrapping"),
    "an index always fits": (axis.Fits, "always", property(lambda self: True), "wrapping"),
    "old tiles may be overwritten": (fuse._Fuse, "before", lambda self, argument, owner: True, "swapping"),
    "one tile after the other": (lower, "root", lambda buf: None, "swapping"),
    "kept elements not written": (lower._Function, "elements", lambda self, op, kept, at: [self.at(value, at) for value in op.operands], "softmax"),
    "no test of a period": (guards, "_period", lambda em, one: [], "modulo 20 from 13"),
    "masks at the first element": (full._Nest, "ends", lambda self, value, tests, find=full._Nest.ends: find(self, value, tests)[:1] * 2, "from 0 to 127, at 0"),
    "masks at the wrong end": (full, "_ENDS", dict.fromkeys(full._ENDS, (1, 1)), "from 1 to 128, at 0"),
    "masks of indices that wrap": (full._Nest, "ends", lambda self, value, tests, find=full._Nest.ends: find(self, value, []), f"from {-(1 << 31)} to 10, at {(1 << 31) - 64}"),
    "a step less": (carried, "_steps", lambda argument, value, find=carried._steps: find(argument, value)[1:], "moving"),
    "steps twice": (carried, "_steps", lambda argument, value, find=carried._steps: find(argument, value) * 2, "moving"),
    "all buffers in one place": (buffers._Frame, "place", stacked, "attention"),
    "the combination turned": (lower, "_combine", turned, "linear_scan"),
}  # fmt: skip
RULES = {
    "no mask of a load": (lanes.ELEMENTS, "load", cut(1), "wrapping"),
    "no other of a load": (lanes.ELEMENTS, "load", cut(2), "masked_other"),
    "no mask of a store": (lower.RULES, "store", cut(2), "add"),
    "no mask of a histogram": (lower.RULES, "histogram", cut(1), "count"),
    "no start of a range": (axis._RULES, "iota", attributes(start=0), "range_from"),
    "no reverse": (lower.RULES, "scan", attributes(reverse=False), "scans-i32-True"),
    "lanes of a reduction": (lower.RULES, "reduce", attributes(lanes=8), "row_sum-axis1"),
    "accumulators of a reduction": (lower.RULES, "reduce", attributes(accumulators=2), "row_sum-axis1"),
    "sign of an operation": (lanes.ELEMENTS, "cmp", lambda op: op.attributes.update(predicate=op.attributes["predicate"].replace("slt", "ult")), "comparisons-i32"),
    "rounding of a cast": (lanes.ELEMENTS, "cast", attributes(rounding="rtne"), "cast_toward_zero-fp16"),
    "shape not transposed": (lanes.ELEMENTS, "trans", lambda op: op.attributes.update(order=sorted(op.attributes["order"])), "transpose"),
    "operands of a product turned": (lower.RULES, "dot", lambda op: op.operands.insert(0, op.operands.pop(1)), "batched"),
}  # fmt: skip


def found(name):
    try:
        check(name)
    except (Miscompiled, KernelFault, IRError):
        return True
    return False


@pytest.mark.parametrize("fault", PLANTED)
def test_planted(fault, monkeypatch):
    where, name, wrong, kernel = PLANTED[fault]
    monkeypatch.setattr(where, name, wrong)
    assert found(kernel)


@pytest.mark.parametrize("fault", RULES)
def test_planted_rule(fault, monkeypatch):
    table, name, change, kernel = RULES[fault]
    monkeypatch.setitem(table, name, changed(table[name], change))
    assert found(kernel)
