"""Shapes: transposition, reshaping, joining, splitting, concatenation, gathering, ranks 0 to 5."""

import numpy as np
import triton
import triton.language as tl

from tests.triton.corpus import Case


@triton.jit
def transpose(x, y, M: tl.constexpr, N: tl.constexpr):
    v = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    tl.store(y + tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :], tl.trans(v))


@triton.jit
def permute(x, y):
    v = tl.reshape(tl.load(x + tl.arange(0, 128)), (2, 4, 2, 8))
    tl.store(y + tl.arange(0, 128), tl.reshape(tl.permute(v, (3, 1, 0, 2)), (128,)))


@triton.jit
def join_split(x, y, out, N: tl.constexpr):
    i = tl.arange(0, N)
    both = tl.join(tl.load(x + i), tl.load(y + i))
    a, b = tl.split(both)
    tl.store(out + tl.arange(0, 2 * N), tl.reshape(both, (2 * N,)))
    tl.store(out + 2 * N + i, a - b)
    tl.store(out + 3 * N + tl.arange(0, 2 * N), tl.interleave(a, b))


@triton.jit
def concatenate(x, y, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + tl.arange(0, 2 * N), tl.cat(tl.load(x + i), tl.load(y + i), can_reorder=True))


@triton.jit
def pick(x, at, y, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr):
    i = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(y + i, tl.gather(tl.load(x + i), tl.load(at + i), AXIS))


@triton.jit
def flip(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y + i, tl.flip(tl.load(x + i), 0))


@triton.jit
def range_from(x, y):
    tl.store(y + tl.arange(0, 16), tl.load(x + tl.arange(16, 32)))


@triton.jit
def outer(x, y, z, M: tl.constexpr, N: tl.constexpr):
    a, b = tl.load(x + tl.arange(0, M)), tl.load(y + tl.arange(0, N))
    tl.store(
        z + tl.arange(0, M)[:, None] * N + tl.arange(0, N), a[:, None] * b[None, :] + tl.full((1, N), 2, tl.float32)
    )


@triton.jit
def single(x, y):
    """A tile of one element, and what becomes of it as a number."""
    v = tl.load(x + tl.arange(0, 1))
    tl.store(y, tl.sum(v) + tl.max(tl.reshape(v, (1, 1)), 1).item())


@triton.jit
def swizzle(out, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.swizzle2d(tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], M, N, 2)
    tl.store(out + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], i * 100 + j)


@triton.jit
def two_at_a_time(a, b):
    return a + 1, b * 2


@triton.jit
def mapped(x, y, out, N: tl.constexpr):
    i = tl.arange(0, N)
    p, q = tl.map_elementwise(two_at_a_time, tl.load(x + i), tl.load(y + i))
    tl.store(out + i, p)
    tl.store(out + N + i, q)


@triton.jit
def clipped(a):
    if a > 60:
        if a % 2 == 0:
            return 60
        return a - 60
    if a < 5:
        return -a
    return a


@triton.jit
def later(a, i, b, j):
    if b > a:
        return b, j
    return a, i


@triton.jit
def returning_early(x, out, N: tl.constexpr):
    """Functions whose blocks branch."""
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(out + i, tl.map_elementwise(clipped, v))
    largest, at = tl.reduce((v, i), 0, later)
    tl.store(out + N, largest)
    tl.store(out + N + 1, at)


def ints(n):
    return np.arange(n, dtype=np.int32) * 3 % 101


def swizzle_want(out):
    table = np.zeros((8, 4), np.int32)
    for i in range(8):
        for j in range(4):
            linear = i * 4 + j
            group, inside = divmod(linear, 8)
            table[i, j] = (group * 2 + inside % 2) * 100 + inside // 2
    return {0: table}


CASES = [
    Case(transpose, "x:*fp32 y:*fp32", lambda rng: [rng.random((8, 16), np.float32), np.zeros((16, 8), np.float32)], lambda x, y: {1: x.T.copy()}, {"M": 8, "N": 16}),
    Case(permute, "x:*i32 y:*i32", lambda rng: [ints(128), np.zeros(128, np.int32)], lambda x, y: {1: x.reshape(2, 4, 2, 8).transpose(3, 1, 0, 2).reshape(-1)}),
    Case(
        join_split, "x:*i32 y:*i32 out:*i32", lambda rng: [ints(16), ints(16)[::-1].copy(), np.zeros(80, np.int32)],
        lambda x, y, out: {2: np.concatenate([np.stack([x, y], 1).reshape(-1), x - y, np.stack([x, y], 1).reshape(-1)])}, {"N": 16},
    ),
    Case(concatenate, "x:*i8 y:*i8 out:*i8", lambda rng: [ints(16).astype(np.int8), ints(16).astype(np.int8) + 1, np.zeros(32, np.int8)], lambda x, y, out: {2: np.concatenate([x, y])}, {"N": 16}),
    *(
        Case(
            pick, "x:*fp32 at:*i32 y:*fp32",
            lambda rng, axis=axis: [rng.random((4, 8), np.float32), rng.integers(0, (4, 8)[axis], (4, 8), dtype=np.int32), np.zeros((4, 8), np.float32)],
            lambda x, at, y, axis=axis: {2: np.take_along_axis(x, at, axis)}, {"M": 4, "N": 8, "AXIS": axis}, label=f"axis{axis}",
        )
        for axis in (0, 1)
    ),
    Case(flip, "x:*i32 y:*i32", lambda rng: [ints(32), np.zeros(32, np.int32)], lambda x, y: {1: x[::-1]}, {"N": 32}),
    Case(
        range_from, "x:*i32 y:*i32", lambda rng: [ints(32), np.zeros(16, np.int32)], lambda x, y: {1: x[16:]},
    ),
    Case(
        outer, "x:*fp32 y:*fp32 z:*fp32", lambda rng: [rng.random(8, np.float32), rng.random(16, np.float32), np.zeros((8, 16), np.float32)],
        lambda x, y, z: {2: np.outer(x, y) + np.float32(2)}, {"M": 8, "N": 16},
    ),
    Case(single, "x:*fp32 y:*fp32", lambda rng: [np.array([1.5], np.float32), np.zeros(1, np.float32)], lambda x, y: {1: x + x}),
    Case(swizzle, "out:*i32", lambda rng: [np.zeros((8, 4), np.int32)], swizzle_want, {"M": 8, "N": 4}),
    Case(
        mapped, "x:*i32 y:*i32 out:*i32", lambda rng: [ints(16), ints(16) + 5, np.zeros(32, np.int32)],
        lambda x, y, out: {2: np.concatenate([x + 1, y * 2])}, {"N": 16},
    ),
    Case(
        returning_early, "x:*i32 out:*i32", lambda rng: [ints(32), np.zeros(34, np.int32)],
        lambda x, out: {1: np.concatenate([np.where(x > 60, np.where(x % 2 == 0, 60, x - 60), np.where(x < 5, -x, x)), [93, 31]]).astype(np.int32)}, {"N": 32},
    ),
]  # fmt: skip
