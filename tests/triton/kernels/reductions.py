"""Reductions, scans, sorting, histograms."""

import numpy as np
import triton
import triton.language as tl

from tests.triton.corpus import Case


@triton.jit
def row_sum(x, y, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr):
    v = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    K: tl.constexpr = M if AXIS == 1 else N
    tl.store(y + tl.arange(0, K), tl.sum(v, axis=AXIS))


@triton.jit
def all_kinds(x, out, N: tl.constexpr):
    v = tl.load(x + tl.arange(0, N))
    tl.store(out, tl.sum(v))
    tl.store(out + 1, tl.max(v))
    tl.store(out + 2, tl.min(v))
    tl.store(out + 3, tl.xor_sum(v))
    tl.store(out + 4, tl.reduce_or(v, 0))


@triton.jit
def arg_extremes(x, values, places, N: tl.constexpr):
    v = tl.load(x + tl.arange(0, N))
    best, at = tl.max(v, axis=0, return_indices=True)
    tl.store(values, best)
    tl.store(places, at)
    tl.store(places + 1, tl.argmax(v, axis=0))
    tl.store(places + 2, tl.argmin(v, axis=0))


@triton.jit
def softmax(x, y, n, B: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, B)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(y + row * n + i, e / tl.sum(e, axis=0), mask=i < n)


@triton.jit
def welford_combine(mean_a, m2_a, n_a, mean_b, m2_b, n_b):
    delta = mean_b - mean_a
    n = n_a + n_b
    share = tl.where(n == 0, 0.0, n_b / n)
    return mean_a + delta * share, m2_a + m2_b + delta * delta * n_a * share, n


@triton.jit
def welford(x, out, N: tl.constexpr):
    v = tl.load(x + tl.arange(0, N))
    mean, m2, n = tl.reduce((v, tl.zeros_like(v), tl.full([N], 1.0, tl.float32)), 0, welford_combine)
    tl.store(out, mean)
    tl.store(out + 1, m2 / n)


@triton.jit
def branching_combine(a, b):
    r = a - b if a > b else b - a
    return r


@triton.jit
def reduce_with_branch(x, y, N: tl.constexpr):
    tl.store(y, tl.reduce(tl.load(x + tl.arange(0, N)), 0, branching_combine))


@triton.jit
def five_d(x, y, AXIS: tl.constexpr):
    v = tl.reshape(tl.load(x + tl.arange(0, 128)), (2, 4, 2, 4, 2))
    r = tl.sum(v, axis=AXIS)
    tl.store(y + tl.arange(0, r.numel), tl.reshape(r, (r.numel,)))


@triton.jit
def scans(x, out, N: tl.constexpr, REVERSE: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(out + i, tl.cumsum(v, 0, reverse=REVERSE))
    tl.store(out + N + i, tl.cumprod(v, 0, reverse=REVERSE))


@triton.jit
def linear_combine(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def linear_scan(x, y, M: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    a, b = tl.associative_scan((tl.load(x + i), tl.load(x + M * N + i)), 1, linear_combine)
    tl.store(y + i, a)
    tl.store(y + M * N + i, b)


@triton.jit
def sorted_rows(x, y, M: tl.constexpr, N: tl.constexpr, DOWN: tl.constexpr):
    i = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(y + i, tl.sort(tl.load(x + i), dim=1, descending=DOWN))


@triton.jit
def top(x, y, N: tl.constexpr, K: tl.constexpr):
    tl.store(y + tl.arange(0, K), tl.topk(tl.load(x + tl.arange(0, N)), K))


@triton.jit
def count(x, y, N: tl.constexpr, BINS: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(y + tl.arange(0, BINS), tl.histogram(v, BINS))
    tl.store(y + BINS + tl.arange(0, BINS), tl.histogram(v, BINS, mask=i < N // 2))


def ordered_sum(values, axis=0, lanes=64):
    """The order of docs/semantics.md, element by element."""
    rows = np.moveaxis(values, axis, 0)
    slots = [rows[i].copy() for i in range(min(lanes, len(rows)))]
    for i in range(lanes, len(rows)):
        slots[i % lanes] = slots[i % lanes] + rows[i]
    while len(slots) > 1:
        half = len(slots) // 2
        slots = [slots[i] + slots[i + half] for i in range(half)]
    return slots[0]


def numbers(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


def softmax_want(x, y, n):
    padded = np.full((3, 64), -np.inf, np.float32)
    padded[:, :n] = x
    e = np.exp((padded - padded.max(1, keepdims=True)).astype(np.float64)).astype(np.float32)
    return {1: (e / ordered_sum(e, 1)[:, None])[:, :n]}


def arg_want(x, values, places):
    return {1: x.max(keepdims=True), 2: np.array([np.argmax(x), np.argmax(x), np.argmin(x)], np.int32)}


def scan_want(x, out, reverse):
    def along(function):
        return function(x[::-1], dtype=x.dtype)[::-1] if reverse else function(x, dtype=x.dtype)

    return {1: np.concatenate([along(np.cumsum), along(np.cumprod)])}


def linear_want(x, y):
    a, b = x.reshape(2, 4, 16).copy()
    for i in range(1, 16):
        b[:, i] = b[:, i - 1] * a[:, i] + b[:, i]
        a[:, i] = a[:, i - 1] * a[:, i]
    return {1: np.concatenate([a, b]).reshape(-1)}


def int_kinds(x, out):
    with np.errstate(over="ignore"):
        return {
            1: np.array(
                [x.sum(dtype=x.dtype), x.max(), x.min(), np.bitwise_xor.reduce(x), np.bitwise_or.reduce(x)], x.dtype
            )
        }


TIED = np.tile(np.array([3, 1, 7, 7, 1, 2, 7, 0], np.float32), 8)

CASES = [
    *(
        Case(
            row_sum, "x:*fp32 y:*fp32", lambda rng, axis=axis: [numbers(rng, 8, 256), np.zeros((256, 8)[axis], np.float32)],
            lambda x, y, axis=axis: {1: ordered_sum(x, axis)}, {"M": 8, "N": 256, "AXIS": axis}, label=f"axis{axis}",
        )
        for axis in (0, 1)
    ),
    *(
        Case(
            all_kinds, f"x:*{name} out:*{name}", lambda rng, dtype=dtype: [rng.integers(-100, 100, 128, dtype=dtype), np.zeros(5, dtype)],
            int_kinds, {"N": 128}, label=name,
        )
        for name, dtype in (("i32", np.int32), ("i64", np.int64))
    ),
    Case(
        arg_extremes, "x:*fp32 values:*fp32 places:*i32", lambda rng: [TIED, np.zeros(1, np.float32), np.zeros(3, np.int32)],
        arg_want, {"N": 64},
    ),
    Case(softmax, "x:*fp32 y:*fp32 n:i32", lambda rng: [numbers(rng, 3, 50), np.zeros((3, 50), np.float32), 50], softmax_want, {"B": 64}, (3,)),
    Case(
        welford, "x:*fp32 out:*fp32", lambda rng: [numbers(rng, 256), np.zeros(2, np.float32)],
        lambda x, out: {1: np.array([x.mean(dtype=np.float64), x.var(dtype=np.float64)], np.float32)}, {"N": 256}, rtol=2e-6,
    ),
    Case(
        reduce_with_branch, "x:*i32 y:*i32", lambda rng: [np.array([9, 1, 4, 2], np.int32), np.zeros(1, np.int32)],
        lambda x, y: {1: np.array([abs(abs(9 - 4) - abs(1 - 2))], np.int32)}, {"N": 4},
    ),
    *(
        Case(
            five_d, "x:*i32 y:*i32", lambda rng, axis=axis: [np.arange(128, dtype=np.int32), np.zeros(128 // (2, 4)[axis % 2], np.int32)],
            lambda x, y, axis=axis: {1: x.reshape(2, 4, 2, 4, 2).sum(axis, dtype=np.int32).reshape(-1)}, {"AXIS": axis}, label=str(axis),
        )
        for axis in range(5)
    ),
    *(
        Case(
            scans, f"x:*{name} out:*{name}", lambda rng, dtype=dtype: [(rng.random(32) + 0.5).astype(dtype) + 1, np.zeros(64, dtype)],
            lambda x, out, reverse=reverse: scan_want(x, out, reverse), {"N": 32, "REVERSE": reverse}, label=f"{name}-{reverse}",
        )
        for name, dtype in (("fp32", np.float32), ("i32", np.int32)) for reverse in (False, True)
    ),
    Case(linear_scan, "x:*fp32 y:*fp32", lambda rng: [numbers(rng, 128), np.zeros(128, np.float32)], linear_want, {"M": 4, "N": 16}),
    *(
        Case(
            sorted_rows, f"x:*{name} y:*{name}", lambda rng, dtype=dtype: [rng.normal(size=(4, 16)).__mul__(50).astype(dtype), np.zeros((4, 16), dtype)],
            lambda x, y, down=down: {1: np.sort(x, axis=1)[:, :: -1 if down else 1]}, {"M": 4, "N": 16, "DOWN": down}, label=f"{name}-{down}",
        )
        for name, dtype in (("fp32", np.float32), ("i16", np.int16)) for down in (False, True)
    ),
    Case(
        top, "x:*fp32 y:*fp32", lambda rng: [numbers(rng, 64), np.zeros(8, np.float32)],
        lambda x, y: {1: np.sort(x)[::-1][:8]}, {"N": 64, "K": 8},
    ),
    Case(
        count, "x:*i32 y:*i32", lambda rng: [rng.integers(0, 16, 128, dtype=np.int32), np.zeros(32, np.int32)],
        lambda x, y: {1: np.concatenate([np.bincount(x, minlength=16), np.bincount(x[:64], minlength=16)]).astype(np.int32)},
        {"N": 128, "BINS": 16},
    ),
]  # fmt: skip
