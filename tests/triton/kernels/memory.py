"""Memory: strides, block pointers, descriptors, pointers in memory, atomics, aliasing."""

import numpy as np
import triton
import triton.language as tl

from tests.triton.corpus import Case


@triton.jit
def strided(x, y, sm, sn, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    tl.store(y + i * N + j, tl.load(x + i * sm + j * sn))


@triton.jit
def modulo(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.load(x + (i * 7) % n))


@triton.jit
def block_pointer(x, y, m, n, BM: tl.constexpr, BN: tl.constexpr):
    source = tl.make_block_ptr(x, (m, n), (n, 1), (tl.program_id(0) * BM, 0), (BM, BN), (1, 0))
    target = tl.make_block_ptr(y, (m, n), (n, 1), (tl.program_id(0) * BM, 0), (BM, BN), (1, 0))
    for _ in range(0, n, BN):
        v = tl.load(source, boundary_check=(0, 1), padding_option="zero")
        tl.store(target, v + 1, boundary_check=(0, 1))
        source = tl.advance(source, (0, BN))
        target = tl.advance(target, (0, BN))


@triton.jit
def descriptor(x, y, m, n, BM: tl.constexpr, BN: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[m, n], strides=[n, 1], block_shape=[BM, BN])
    target = tl.make_tensor_descriptor(y, shape=[m, n], strides=[n, 1], block_shape=[BM, BN])
    for j in range(0, n, BN):
        at = tl.program_id(0) * BM
        target.store([at, j], source.load([at, j]) * 2)


@triton.jit
def descriptor_rows(x, rows, y, m, n, K: tl.constexpr, BN: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[m, n], strides=[n, 1], block_shape=[1, BN])
    picked = source.gather(tl.load(rows + tl.arange(0, K)), 0)
    tl.store(y + tl.arange(0, K)[:, None] * BN + tl.arange(0, BN)[None, :], picked)


@triton.jit
def pointer_table(table, out, B: tl.constexpr):
    base = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    i = tl.arange(0, B)
    tl.store(out + tl.program_id(0) * B + i, tl.load(base + i))


@triton.jit
def shift_in_place(x, n, B: tl.constexpr):
    """All is read before anything is written."""
    i = tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    tl.store(x + i + 1, v, mask=i < n)


@triton.jit
def store_then_load(x, y, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    tl.store(x + i, v * 2)
    tl.store(y + i, tl.load(x + B - 1 - i) + v)


@triton.jit
def atomics_int(x, out, old, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    same = i * 0
    tl.store(old + i, tl.atomic_add(out + same, v))
    tl.atomic_max(out + 1 + same, v)
    tl.atomic_min(out + 2 + same, v)
    tl.atomic_and(out + 3 + same, v)
    tl.atomic_or(out + 4 + same, v)
    tl.atomic_xor(out + 5 + same, v, mask=i < B // 2)
    tl.atomic_xchg(out + 6, tl.max(v))


@triton.jit
def atomics_float(x, out, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    tl.atomic_add(out + i % 4, v, sem="relaxed")
    tl.atomic_max(out + 4 + i * 0, v)
    tl.atomic_min(out + 5 + i * 0, v)


@triton.jit
def compare_and_swap(x, out, old, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(old + i, tl.atomic_cas(out + i, tl.load(x + i), i + 100))
    tl.atomic_cas(out + B, 0, 7, sem="acquire", scope="cta")


@triton.jit
def lock(mutex, total):
    while tl.atomic_cas(mutex, 0, 1) == 1:
        pass
    tl.store(total, tl.load(total) + tl.program_id(0))
    tl.atomic_xchg(mutex, 0)


@triton.jit
def bool_memory(x, y, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.load(x + i) ^ (i % 2 == 0))


@triton.jit
def hints(x, y, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i, cache_modifier=".cg", eviction_policy="evict_first", volatile=True)
    tl.store(y + i, v, cache_modifier=".wt", eviction_policy="evict_last")


@triton.jit
def last_wins(x, y, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i // 4, tl.load(x + i))


def two_d(rng, m=10, n=20):
    return rng.random((m, n), np.float32)


def atomic_want(x, out, old):
    after = out.copy()
    after[0] += x.sum()
    half = x[: len(x) // 2]
    after[1:7] = [
        max(out[1], x.max()),
        min(out[2], x.min()),
        *(f.reduce(x, initial=out[k]) for f, k in ((np.bitwise_and, 3), (np.bitwise_or, 4))),
        np.bitwise_xor.reduce(half, initial=out[5]),
        x.max(),
    ]
    return {1: after, 2: (out[0] + np.concatenate([[0], np.cumsum(x)[:-1]])).astype(x.dtype)}


def float_atomic_want(x, out):
    after = out.copy()
    for i, v in enumerate(x):
        after[i % 4] += v
    after[4:6] = max(out[4], x.max()), min(out[5], x.min())
    return {1: after}


CASES = [
    Case(strided, "x:*fp32 y:*fp32 sm:i32 sn:i32", lambda rng: [rng.random(400, np.float32), np.zeros((8, 4), np.float32), 40, 3], lambda x, y, sm, sn: {1: np.lib.stride_tricks.as_strided(x, (8, 4), (160, 12)).copy()}, {"M": 8, "N": 4}),
    Case(modulo, "x:*i64 y:*i64 n:i32", lambda rng: [np.arange(13) * 5, np.zeros(32, np.int64), 13], lambda x, y, n: {1: x[np.arange(32) * 7 % 13]}, {"B": 32}),
    Case(
        block_pointer, "x:*fp32 y:*fp32 m:i32 n:i32", lambda rng: [two_d(rng), np.zeros((10, 20), np.float32), 10, 20],
        lambda x, y, m, n: {1: x + 1}, {"BM": 4, "BN": 8}, (3,),
    ),
    Case(
        descriptor, "x:*fp32 y:*fp32 m:i32 n:i32", lambda rng: [two_d(rng), np.zeros((10, 20), np.float32), 10, 20],
        lambda x, y, m, n: {1: x * 2}, {"BM": 4, "BN": 8}, (3,),
    ),
    Case(
        descriptor_rows, "x:*fp32 rows:*i32 y:*fp32 m:i32 n:i32",
        lambda rng: [two_d(rng), np.array([3, 0, 9, 3, 11, 1, 2, 5], np.int32), np.full((8, 16), 9, np.float32), 10, 20],
        lambda x, rows, y, m, n: {2: np.where((rows < 10)[:, None], x[np.minimum(rows, 9), :16], np.float32(0))}, {"K": 8, "BN": 16},
    ),
    Case(shift_in_place, "x:*i32 n:i32", lambda rng: [np.arange(17, dtype=np.int32), 10], lambda x, n: {0: np.concatenate([[0], np.arange(10), np.arange(11, 17)]).astype(np.int32)}, {"B": 16}),
    Case(store_then_load, "x:*i32 y:*i32", lambda rng: [np.arange(8, dtype=np.int32), np.zeros(8, np.int32)], lambda x, y: {0: x * 2, 1: x[::-1] * 2 + x}, {"B": 8}),
    *(
        Case(
            atomics_int, f"x:*{name} out:*{name} old:*{name}",
            lambda rng, dtype=dtype: [rng.integers(1, 1000, 16, dtype=dtype) - (500 if np.dtype(dtype).kind == "i" else 0), np.array([5, 7, 9, 11, 13, 15, 17], dtype), np.zeros(16, dtype)],
            atomic_want, {"B": 16}, label=name,
        )
        for name, dtype in (("i32", np.int32), ("u32", np.uint32), ("i64", np.int64))
    ),
    Case(
        atomics_float, "x:*fp32 out:*fp32", lambda rng: [rng.normal(size=16).astype(np.float32), np.zeros(6, np.float32)],
        float_atomic_want, {"B": 16},
    ),
    Case(
        compare_and_swap, "x:*i32 out:*i32 old:*i32",
        lambda rng: [np.arange(8, dtype=np.int32), np.array([0, 9, 2, 9, 4, 9, 6, 9, 0], np.int32), np.zeros(8, np.int32)],
        lambda x, out, old: {1: np.array([100, 9, 102, 9, 104, 9, 106, 9, 7], np.int32), 2: out[:8]}, {"B": 8},
    ),
    Case(lock, "mutex:*i32 total:*i32", lambda rng: [np.zeros(1, np.int32), np.zeros(1, np.int32)], lambda mutex, total: {0: np.zeros(1, np.int32), 1: np.array([10], np.int32)}, grid=(5,)),
    Case(bool_memory, "x:*i1 y:*i1", lambda rng: [np.arange(16) % 3 == 0, np.zeros(16, bool)], lambda x, y: {1: x ^ (np.arange(16) % 2 == 0)}, {"B": 16}),
    Case(hints, "x:*fp64 y:*fp64", lambda rng: [np.arange(8.0), np.zeros(8)], lambda x, y: {1: x}, {"B": 8}),
    Case(last_wins, "x:*i32 y:*i32", lambda rng: [np.arange(16, dtype=np.int32), np.zeros(4, np.int32)], lambda x, y: {1: x[3::4]}, {"B": 16}),
]  # fmt: skip
