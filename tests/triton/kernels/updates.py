"""Buffers that are read and written: optimisers, and loads and stores of one argument, or of two that are the same."""

import numpy as np
import triton
import triton.language as tl

from tests.triton.corpus import Case

N = 100


@triton.jit
def sgd(p, g, m, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(p + i, mask=i < n)
    tl.store(p + i, v - 0.5 * (tl.load(g + i, mask=i < n) + 0.25 * v), mask=i < n)


@triton.jit
def momentum(p, g, m, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    speed = tl.load(m + i, mask=i < n) * 0.5 + tl.load(g + i, mask=i < n)
    tl.store(m + i, speed, mask=i < n)
    tl.store(p + i, tl.load(p + i, mask=i < n) - 0.25 * speed, mask=i < n)


@triton.jit
def nesterov(p, g, m, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    grad = tl.load(g + i, mask=i < n)
    tl.store(m + i, tl.load(m + i, mask=i < n) * 0.5 + grad, mask=i < n)
    tl.store(p + i, tl.load(p + i, mask=i < n) - 0.25 * (grad + 0.5 * tl.load(m + i, mask=i < n)), mask=i < n)


@triton.jit
def lion(p, g, m, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    grad, average = tl.load(g + i, mask=i < n), tl.load(m + i, mask=i < n)
    c = 0.75 * average + 0.25 * grad
    step = tl.where(c > 0, 1.0, tl.where(c < 0, -1.0, 0.0))
    tl.store(p + i, tl.load(p + i, mask=i < n) - 0.125 * step, mask=i < n)
    tl.store(m + i, 0.5 * average + 0.5 * grad, mask=i < n)


@triton.jit
def moving_average(p, g, m, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(m + i, tl.load(m + i, mask=i < n) * 0.75 + tl.load(p + i, mask=i < n) * 0.25, mask=i < n)


@triton.jit
def clipped(p, g, m, n, B: tl.constexpr):
    """In place, and where it was too large a mark in the other buffer."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(g + i, mask=i < n)
    tl.store(g + i, tl.clamp(v, -1.0, 1.0), mask=i < n)
    tl.store(m + i, 1.0, mask=(i < n) & (tl.abs(v) > 1))


@triton.jit
def swapped(p, g, m, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a, b = tl.load(p + i, mask=i < n), tl.load(g + i, mask=i < n)
    tl.store(p + i, b, mask=i < n)
    tl.store(g + i, a, mask=i < n)


@triton.jit
def written_and_read(p, g, m, n, B: tl.constexpr):
    """What is read after a store is what was stored."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(m + i, tl.load(p + i, mask=i < n) * 2, mask=i < n)
    again = tl.load(m + i, mask=i < n)
    tl.store(m + i, again + 1, mask=i < n)
    tl.store(g + i, tl.load(m + i, mask=i < n) - again, mask=i < n)


@triton.jit
def repeated(p, g, m, n, B: tl.constexpr):
    """A loop over one place in memory."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    for k in range(4):
        tl.store(m + i, tl.load(m + i, mask=i < n) * 0.5 + tl.load(p + i, mask=i < n) * k, mask=i < n)


@triton.jit
def until_small(p, g, m, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(p + i, mask=i < n, other=0)
    rounds = 0
    while tl.max(tl.abs(v), 0) > 0.5:
        v = v * 0.5
        rounds += 1
    tl.store(p + i, v, mask=i < n)
    tl.store(m + i, rounds, mask=i < n)


def lions(p, g, m):
    return {0: p - np.sign(0.75 * m + 0.25 * g) / 8, 2: 0.5 * m + 0.5 * g}


def halved(p, g, m):
    p, m = p.copy(), m.copy()
    for start in (0, 64):
        part = slice(start, min(start + 64, N))
        rounds = 0
        while np.abs(p[part]).max() > 0.5:
            p[part] *= 0.5
            rounds += 1
        m[part] = rounds
    return {0: p, 2: m}


def repeated_want(p, g, m):
    for k in range(4):
        m = m * 0.5 + p * k
    return {2: m}


UPDATES = {
    sgd: lambda p, g, m: {0: p - 0.5 * (g + 0.25 * p)},
    momentum: lambda p, g, m: {0: p - 0.25 * (0.5 * m + g), 2: 0.5 * m + g},
    nesterov: lambda p, g, m: {0: p - 0.25 * (g + 0.5 * (0.5 * m + g)), 2: 0.5 * m + g},
    lion: lions,
    moving_average: lambda p, g, m: {2: 0.75 * m + 0.25 * p},
    clipped: lambda p, g, m: {1: np.clip(g, -1, 1), 2: np.where(np.abs(g) > 1, 1, m)},
    swapped: lambda p, g, m: {0: g, 1: p},
    written_and_read: lambda p, g, m: {1: np.ones_like(p), 2: 2 * p + 1},
    repeated: repeated_want,
    until_small: halved,
}


@triton.jit
def negated_in_place(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, 0 - tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def reversed_in_place(x, y, n, B: tl.constexpr):
    """One program reads all before it writes."""
    i = tl.arange(0, B)
    tl.store(y + n - 1 - i, tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def shifted_in_place(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i + 1, v, mask=i + 1 < n)
    tl.store(y, tl.load(x + n - 1))


@triton.jit
def summed_in_place(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.cumsum(tl.load(x + i, mask=i < n, other=0), 0), mask=i < n)


@triton.jit
def sorted_in_place(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.sort(tl.load(x + i, mask=i < n, other=float("inf"))), mask=i < n)


@triton.jit
def fibonacci(x, y, n, B: tl.constexpr):
    """Each step reads what the two before it wrote, by way of the other name."""
    for k in range(2, n):
        tl.store(y + k, (tl.load(x + k - 1) + tl.load(x + k - 2)) % 32)


@triton.jit
def butterfly(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    half = n // 2
    a, b = tl.load(x + i, mask=i < half), tl.load(x + half + i, mask=i < half)
    tl.store(y + i, a + b, mask=i < half)
    tl.store(y + half + i, a - b, mask=i < half)


@triton.jit
def partial_overwrite(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    before = tl.load(x + i, mask=i < n)
    tl.store(y + 2 * i, 7.0, mask=2 * i < n)
    tl.store(y + i, before + tl.load(x + i, mask=i < n), mask=(i < n) & (i % 3 == 0))


def fibonacci_want(x):
    x = x.copy()
    for k in range(2, len(x)):
        x[k] = (x[k - 1] + x[k - 2]) % 32
    return x


def overwritten(x):
    after, i = x.copy(), np.arange(len(x))
    after[::2] = 7
    return np.where(i % 3 == 0, x + after, after)


IN_PLACE = {
    negated_in_place: lambda x: 0 - x,
    reversed_in_place: lambda x: x[::-1],
    shifted_in_place: lambda x: np.concatenate([[x[-2]], x[:-1]]),
    summed_in_place: np.cumsum,
    sorted_in_place: np.sort,
    fibonacci: fibonacci_want,
    butterfly: lambda x: np.concatenate([x[:50] + x[50:], x[:50] - x[50:]]),
    partial_overwrite: overwritten,
}


def three(rng):
    return [(rng.integers(-16, 17, N) / 8).astype(np.float32) for _ in range(3)] + [N]


def one(rng):
    """Two arguments of one array."""
    x = rng.integers(0, 17, N).astype(np.float32)
    return [x, x, N]


CASES = [
    *(
        Case(
            kernel, "p:*fp32 g:*fp32 m:*fp32 n:i32", three, lambda p, g, m, n, want=want: {k: v.astype(np.float32) for k, v in want(p, g, m).items()},
            {"B": 64}, (2,),
        )
        for kernel, want in UPDATES.items()
    ),
    *(
        Case(
            kernel, "x:*fp32 y:*fp32 n:i32", one, lambda x, y, n, want=want: {0: np.ascontiguousarray(want(x)).astype(np.float32)},
            {"B": 64 if kernel is negated_in_place else 128}, (2 if kernel is negated_in_place else 1,),
        )
        for kernel, want in IN_PLACE.items()
    ),
]  # fmt: skip
