"""Control flow: loops, branches, early returns, calls of functions that are not inlined."""

import numpy as np
import triton
import triton.language as tl

from tests.triton.corpus import Case


@triton.jit
def dot_loop(x, y, out, n, B: tl.constexpr):
    acc = tl.zeros([B], tl.float32)
    for start in range(0, n, B):
        i = start + tl.arange(0, B)
        acc += tl.load(x + i, mask=i < n, other=0.0) * tl.load(y + i, mask=i < n, other=0.0)
    tl.store(out + tl.arange(0, B), acc)


@triton.jit
def collatz(x, steps):
    n = tl.load(x + tl.program_id(0))
    count = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        count += 1
    tl.store(steps + tl.program_id(0), count)


@triton.jit
def nested(out, m, n):
    total = 0
    for i in range(m):
        for j in range(i, n, 2):
            if (i + j) % 3 == 0:
                total += i * j
            elif j > 4:
                total -= 1
    for i in range(5, -7, -3):
        total += i * 1000
    for i in range(-m, m + 1):
        total += i * i * 100000
    tl.store(out, total)


@triton.jit
def early_return(x, out, n):
    pid = tl.program_id(0)
    if pid >= n:
        return
    v = tl.load(x + pid)
    if v < 0:
        tl.store(out + pid, -1)
        return
    tl.store(out + pid, v * 2)


@triton.jit
def nested_return(out, n):
    pid = tl.program_id(0)
    v = pid
    if pid > 2:
        v = v * 10
        if n > 7:
            if pid == 4:
                return
            v += 1
        v += 100
    tl.store(out + pid, v)


@triton.jit
def many_returns(out, a, b, c):
    """Returns at three depths, and work after each."""
    v = tl.program_id(0)
    if v > 0:
        if a > 0:
            if v == 1:
                tl.store(out + v, 100)
                return
            v += 10
        else:
            if b > 0:
                if c > 0:
                    return
                v += 20
            v += 40
        if v == 12:
            return
        v *= 2
        if v > 25:
            tl.store(out + tl.program_id(0), -v)
            return
    tl.store(out + tl.program_id(0), v + 1000)


@triton.jit(noinline=True)
def helper(a, b):
    if a > b:
        return a - b
    return b * 2


@triton.jit(noinline=True)
def helper_of_two(p, v):
    tl.store(p, v)
    return v + 1, v * 2.0


@triton.jit
def calls(out, floats, x):
    tl.store(out, helper(x, 3))
    tl.store(out + 1, helper(1, x))
    a, b = helper_of_two(floats, x)
    tl.store(floats + 1, a + b)


@triton.jit
def static_loop(out, N: tl.constexpr):
    acc = 0
    for i in tl.static_range(N):
        acc = acc * 3 + i
    tl.store(out, acc)


@triton.jit
def loop_hints(x, out, n, B: tl.constexpr):
    acc = tl.zeros([B], tl.int64)
    for i in tl.range(0, n, num_stages=3, loop_unroll_factor=2):
        acc += tl.load(x + i * B + tl.arange(0, B))
    tl.store(out + tl.arange(0, B), acc)


@triton.jit
def grid_places(out):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    at = x + tl.num_programs(0) * (y + tl.num_programs(1) * z)
    tl.store(out + at, x + 10 * y + 100 * z + 1000 * tl.num_programs(2))


@triton.jit
def tile_condition(x, out, N: tl.constexpr):
    v = tl.load(x + tl.arange(0, N))
    v = v + 1 if tl.max(v) > 5 else v - 1
    tl.store(out + tl.arange(0, N), v)


@triton.jit
def checks(x, out, n):
    v = tl.load(x)
    tl.assume(v > 0)
    tl.device_assert(v == n, "value is not n")
    tl.debug_barrier()
    tl.store(out, v)


def steps_of(n):
    count = 0
    while n != 1:
        n, count = (n // 2 if n % 2 == 0 else 3 * n + 1), count + 1
    return count


def nested_value(m, n):
    total = sum(i * j if (i + j) % 3 == 0 else -1 if j > 4 else 0 for i in range(m) for j in range(i, n, 2))
    return total + 1000 * sum(range(5, -7, -3)) + 100000 * sum(i * i for i in range(-m, m + 1))


def many_want(out, a, b, c):
    for p in range(len(out)):
        v = p
        if v > 0:
            if a > 0:
                if v == 1:
                    out[p] = 100
                    continue
                v += 10
            else:
                if b > 0:
                    if c > 0:
                        continue
                    v += 20
                v += 40
            if v == 12:
                continue
            v *= 2
            if v > 25:
                out[p] = -v
                continue
        out[p] = v + 1000
    return {0: out}


def loop_want(x, y, out, n):
    acc = np.zeros(32, np.float32)
    for start in range(0, n, 32):
        one = np.zeros((2, 32), np.float32)
        one[:, : min(32, n - start)] = [v[start : start + 32] for v in (x, y)]
        acc = acc + one[0] * one[1]
    return {2: acc}


CASES = [
    Case(
        dot_loop, "x:*fp32 y:*fp32 out:*fp32 n:i32",
        lambda rng: [rng.random(100, np.float32), rng.random(100, np.float32), np.zeros(32, np.float32), 100], loop_want, {"B": 32},
    ),
    Case(
        collatz, "x:*i32 steps:*i32", lambda rng: [np.array([1, 7, 27, 6], np.int32), np.zeros(4, np.int32)],
        lambda x, steps: {1: np.array([steps_of(v) for v in x.tolist()], np.int32)}, grid=(4,),
    ),
    Case(nested, "out:*i32 m:i32 n:i32", lambda rng: [np.zeros(1, np.int32), 5, 9], lambda out, m, n: {0: np.array([nested_value(5, 9)], np.int32)}),
    Case(
        early_return, "x:*i32 out:*i32 n:i32", lambda rng: [np.array([3, -4, 5, 6], np.int32), np.full(4, 77, np.int32), 3],
        lambda x, out, n: {1: np.array([6, -1, 10, 77], np.int32)}, grid=(4,),
    ),
    *(
        Case(
            nested_return, "out:*i32 n:i32", lambda rng, n=n: [np.full(6, -1, np.int32), n],
            lambda out, n: {0: np.array([0, 1, 2, *([131, -1, 151] if n > 7 else [130, 140, 150])], np.int32)}, grid=(6,), label=str(n),
        )
        for n in (3, 9)
    ),
    *(
        Case(
            many_returns, "out:*i32 a:i32 b:i32 c:i32", lambda rng, flags=flags: [np.full(6, -7, np.int32), *flags],
            many_want, grid=(6,), label="".join(map(str, flags)),
        )
        for flags in ((1, 0, 0), (0, 1, 1), (0, 1, 0), (0, 0, 0))
    ),
    Case(
        calls, "out:*i32 floats:*fp32 x:i32", lambda rng: [np.zeros(2, np.int32), np.zeros(2, np.float32), 9],
        lambda out, floats, x: {0: np.array([6, 18], np.int32), 1: np.array([9, 28], np.float32)},
    ),
    Case(static_loop, "out:*i32", lambda rng: [np.zeros(1, np.int32)], lambda out: {0: np.array([(1 * 3 + 2) * 3 + 3], np.int32)}, {"N": 4}),
    Case(
        loop_hints, "x:*i64 out:*i64 n:i32", lambda rng: [np.arange(56), np.zeros(8, np.int64), 7],
        lambda x, out, n: {1: x.reshape(7, 8).sum(0)}, {"B": 8},
    ),
    Case(
        grid_places, "out:*i32", lambda rng: [np.zeros((4, 3, 2), np.int32)],
        lambda out: {0: np.array([[[x + 10 * y + 100 * z + 4000 for x in range(2)] for y in range(3)] for z in range(4)], np.int32)}, grid=(2, 3, 4),
    ),
    *(
        Case(
            tile_condition, "x:*i32 out:*i32", lambda rng, top=top: [np.arange(4, dtype=np.int32) + top, np.zeros(4, np.int32)],
            lambda x, out, top=top: {1: x + (1 if top > 2 else -1)}, {"N": 4}, label=str(top),
        )
        for top in (0, 9)
    ),
    Case(checks, "x:*i32 out:*i32 n:i32", lambda rng: [np.array([3], np.int32), np.zeros(1, np.int32), 3], lambda x, out, n: {1: x}),
]  # fmt: skip
