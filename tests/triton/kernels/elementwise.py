"""Arithmetic on vectors: floats, integers, masks, comparisons, math functions, random numbers."""

import math

import numpy as np
import torch
import triton
import triton.language as tl

from tests.triton.corpus import Case, bits, floats_of, stored


@triton.jit
def add(x, y, z, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.store(z + i, tl.load(x + i, mask=m) + tl.load(y + i, mask=m, other=3.0), mask=m)


@triton.jit
def masked_other(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n, other=-7))


@triton.jit
def float_ops(x, y, out, B: tl.constexpr):
    i = tl.arange(0, B)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, a + b)
    tl.store(out + B + i, a - b)
    tl.store(out + 2 * B + i, a * b)
    tl.store(out + 3 * B + i, a / b)
    tl.store(out + 4 * B + i, tl.maximum(a, b))
    tl.store(out + 5 * B + i, tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out + 6 * B + i, tl.where(a < b, a, 0.0 - b))
    tl.store(out + 7 * B + i, tl.abs(a))
    tl.store(out + 8 * B + i, tl.clamp(a, -0.5, 0.5))


@triton.jit
def float_ops_f32(x, y, z, out, B: tl.constexpr):
    i = tl.arange(0, B)
    a, b, c = tl.load(x + i), tl.load(y + i), tl.load(z + i)
    tl.store(out + i, tl.fma(a, b, c))
    tl.store(out + B + i, tl.math.div_rn(a, b))
    tl.store(out + 2 * B + i, tl.math.sqrt_rn(tl.abs(a)))
    tl.store(out + 3 * B + i, tl.floor(a))
    tl.store(out + 4 * B + i, tl.ceil(a))
    tl.store(out + 5 * B + i, a % b)
    tl.store(out + 6 * B + i, tl.clamp(a, b, 2.0, propagate_nan=tl.PropagateNan.ALL))


@triton.jit
def math_functions(x, out, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    tl.store(out + i, tl.exp(a))
    tl.store(out + B + i, tl.exp2(a))
    tl.store(out + 2 * B + i, tl.log(tl.abs(a)))
    tl.store(out + 3 * B + i, tl.log2(tl.abs(a)))
    tl.store(out + 4 * B + i, tl.sin(a))
    tl.store(out + 5 * B + i, tl.cos(a))
    tl.store(out + 6 * B + i, tl.rsqrt(tl.abs(a)))
    tl.store(out + 7 * B + i, tl.erf(a))
    tl.store(out + 8 * B + i, tl.sigmoid(a))


@triton.jit
def more_math(x, out, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    tl.store(out + i, tl.sqrt(tl.abs(a)))
    tl.store(out + B + i, tl.maximum(a, 1.0, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out + 2 * B + i, tl.minimum(a, 1.0))
    tl.store(out + 3 * B + i, tl.abs(a.to(tl.int32)).to(tl.float32))


@triton.jit
def int_ops(x, y, out, B: tl.constexpr):
    i = tl.arange(0, B)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, a + b)
    tl.store(out + B + i, a - b)
    tl.store(out + 2 * B + i, a * b)
    tl.store(out + 3 * B + i, a // b)
    tl.store(out + 4 * B + i, a % b)
    tl.store(out + 5 * B + i, a & b)
    tl.store(out + 6 * B + i, a | b)
    tl.store(out + 7 * B + i, a ^ b)
    tl.store(out + 8 * B + i, a << b)
    tl.store(out + 9 * B + i, a >> b)
    tl.store(out + 10 * B + i, tl.minimum(a, b))
    tl.store(out + 11 * B + i, tl.maximum(a, b))
    tl.store(out + 12 * B + i, ~a)


@triton.jit
def comparisons(x, y, out, B: tl.constexpr):
    i = tl.arange(0, B)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, a < b)
    tl.store(out + B + i, a <= b)
    tl.store(out + 2 * B + i, a > b)
    tl.store(out + 3 * B + i, a >= b)
    tl.store(out + 4 * B + i, a == b)
    tl.store(out + 5 * B + i, a != b)
    tl.store(out + 6 * B + i, (a < b) | (a == 0))


@triton.jit
def mul_high(x, y, out, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.umulhi(tl.load(x + i), tl.load(y + i)))


@triton.jit
def random_numbers(out, ints, seed, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.rand(seed, i))
    tl.store(ints + i, tl.randint(seed, i + 5))


@triton.jit
def scalars(x, out, a, b, flag):
    v = tl.load(x)
    if flag:
        v = v * a
    tl.store(out, v + b)


B = 64
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-45, 3.4e38, -3.4e38, 1.0, -1.0, 0.5], np.float32)


def floats(rng, n=B, dtype=np.float32):
    """Ordinary and special numbers."""
    array = rng.normal(size=n) * 3
    array[: len(SPECIAL)] = SPECIAL
    with np.errstate(over="ignore"):
        return array.astype(dtype)


def pair(rng, dtype=np.float32):
    a, b = floats(rng, dtype=dtype), floats(rng, dtype=dtype)
    return a, np.where(np.arange(B) < 2 * len(SPECIAL), np.roll(b, 5), b).astype(dtype)


def float_want(x, y, out, dtype=torch.float32):
    a, b = (floats_of(v, dtype) if v.dtype == np.uint16 else torch.from_numpy(v) for v in (x, y))
    low, high = a.new_tensor(-0.5), a.new_tensor(0.5)
    one = [
        a + b, a - b, a * b, a / b, torch.fmax(a, b), torch.minimum(a, b), torch.where(a < b, a, 0 - b), a.abs(),
        torch.fmin(torch.fmax(a, low), high),
    ]  # fmt: skip
    return {2: bits(torch.cat(one))}


def f32_want(x, y, z, out):
    a, b, c = (torch.from_numpy(v) for v in (x, y, z))
    # float64 has room for the exact product; where the sum is inexact there, these numbers are far from a tie of float32.
    fma = (a.double() * b.double() + c.double()).float()
    # math.fmod raises where the rest is NaN; torch's is inexact by denormals.
    rest = torch.tensor(
        [
            math.fmod(p, q) if np.isfinite(p) and q and not np.isnan(q) else np.nan
            for p, q in zip(x.tolist(), y.tolist())
        ]
    )
    clamp = torch.minimum(torch.maximum(a, b), torch.tensor(2.0))
    return {3: torch.cat([fma, a / b, a.abs().sqrt(), a.floor(), a.ceil(), rest, clamp]).numpy()}


def math_want(x, out):
    a = torch.from_numpy(x).double()
    p = a.abs()
    values = [a.exp(), a.exp2(), p.log(), p.log2(), a.sin(), a.cos(), p.rsqrt(), a.erf(), a.sigmoid()]
    return {1: torch.cat(values).to(torch.from_numpy(x).dtype).numpy()}


def more_want(x, out):
    a, one = torch.from_numpy(x), torch.tensor(1.0)
    whole = [0 if v != v else max(min(v, 2147483647.0), -2147483648.0) for v in x.tolist()]
    whole = np.abs(np.trunc(whole).astype(np.int32)).astype(np.float32)
    return {1: torch.cat([a.abs().sqrt(), torch.maximum(a, one), torch.fmin(a, one), torch.from_numpy(whole)]).numpy()}


def ints(rng, dtype):
    info = np.iinfo(dtype)
    a = rng.integers(info.min, info.max, B, dtype=dtype, endpoint=True)
    b = rng.integers(info.min, info.max, B, dtype=dtype, endpoint=True)
    a[:6], b[:6] = [info.min, info.min, 5, 0, info.max, 7], [-1 if info.min else 1, 1, 0, 0, 2, 3]
    b[8:24] = rng.integers(0, info.bits + 3, 16)
    return a, b


def int_want(x, y, out):
    """Python's own integers, one by one."""
    info = np.iinfo(x.dtype)
    width = info.bits

    def divide(a, b):
        if b == 0:
            return 0, a
        q = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return q, a - q * b

    def shifted(a, b, left):
        b %= 1 << width
        if b >= width:
            return 0 if left or a >= 0 else -1
        return a << b if left else a >> b

    rows = []
    for a, b in zip(x.tolist(), y.tolist()):
        q, r = divide(a, b)
        both = (a + b, a - b, a * b, q, r, a & b, a | b, a ^ b, shifted(a, b, True), shifted(a, b, False))
        rows.append([*both, min(a, b), max(a, b), ~a])
    return {
        2: np.array([[v % (1 << width) for v in row] for row in rows], dtype=np.uint64)
        .T.reshape(-1)
        .astype(f"uint{width}")
        .view(x.dtype)
    }


def philox(seed, counter, rounds=10):
    """Philox 4x32, the first of its four words."""
    c, k = [counter, 0, 0, 0], [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(rounds):
        high = [0xCD9E8D57 * c[2] >> 32, 0xD2511F53 * c[0] >> 32]
        low = [0xCD9E8D57 * c[2] & 0xFFFFFFFF, 0xD2511F53 * c[0] & 0xFFFFFFFF]
        c = [high[0] ^ c[1] ^ k[0], low[0], high[1] ^ c[3] ^ k[1], low[1]]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c[0]


def random_want(out, words, seed):
    numbers = np.array([philox(seed, i) for i in range(B)], np.uint32).view(np.int32)
    numbers = np.where(numbers < 0, -numbers.astype(np.int64) - 1, numbers)
    unit = numbers.astype(np.float32) * np.float32(4.6566127342e-10)
    return {0: unit, 1: np.array([philox(seed, i + 5) for i in range(B)], np.uint32).view(np.int32)}


def bf16_pair(rng):
    return [stored(v, torch.bfloat16) for v in pair(rng)]


def compare_want(x, y, out):
    rows = [x < y, x <= y, x > y, x >= y, x == y, x != y, (x < y) | (x == 0)]
    return {2: np.concatenate(rows).astype(np.int8)}


INTS = {
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "u32": np.uint32,
    "u64": np.uint64,
}

CASES = [
    Case(
        add, "x:*fp32 y:*fp32 z:*fp32 n:i32",
        lambda rng: [rng.random(200, np.float32), rng.random(200, np.float32), np.full(200, -1, np.float32), 199],
        lambda x, y, z, n: {2: np.append((x + y)[:199], np.float32(-1))}, {"B": 64}, (4,),
    ),
    Case(
        masked_other, "x:*i16 y:*i16 n:i32", lambda rng: [np.arange(20, dtype=np.int16), np.zeros(64, np.int16), 20],
        lambda x, y, n: {1: np.append(x, np.full(44, -7, np.int16))}, {"B": 64},
    ),
    Case(float_ops, "x:*fp32 y:*fp32 out:*fp32", lambda rng: [*pair(rng), np.zeros(9 * B, np.float32)], float_want, {"B": B}),
    Case(
        float_ops, "x:*fp64 y:*fp64 out:*fp64", lambda rng: [*pair(rng, np.float64), np.zeros(9 * B)], float_want, {"B": B},
        label="f64",
    ),
    Case(
        float_ops, "x:*fp16 y:*fp16 out:*fp16", lambda rng: [*pair(rng, np.float16), np.zeros(9 * B, np.float16)],
        lambda *args: float_want(*args, dtype=torch.float16), {"B": B}, label="f16",
    ),
    Case(
        float_ops, "x:*bf16 y:*bf16 out:*bf16", lambda rng: [*bf16_pair(rng), np.zeros(9 * B, np.uint16)],
        lambda *args: float_want(*args, dtype=torch.bfloat16), {"B": B}, label="bf16",
    ),
    Case(
        float_ops_f32, "x:*fp32 y:*fp32 z:*fp32 out:*fp32",
        lambda rng: [*pair(rng), floats(rng), np.zeros(7 * B, np.float32)], f32_want, {"B": B},
    ),
    Case(
        math_functions, "x:*fp32 out:*fp32", lambda rng: [floats(rng), np.zeros(9 * B, np.float32)], math_want, {"B": B},
        rtol=4e-7,
    ),
    Case(
        math_functions, "x:*fp64 out:*fp64", lambda rng: [floats(rng, dtype=np.float64), np.zeros(9 * B)], math_want,
        {"B": B}, rtol=1e-14, label="f64",
    ),
    *(
        Case(
            int_ops, f"x:*{name} y:*{name} out:*{name}",
            lambda rng, dtype=dtype: [*ints(rng, dtype), np.zeros(13 * B, dtype)], int_want, {"B": B}, label=name,
        )
        for name, dtype in INTS.items()
    ),
    *(
        Case(
            comparisons, f"x:*{name} y:*{name} out:*i8",
            lambda rng, make=make: [*make(rng), np.zeros(7 * B, np.int8)], compare_want, {"B": B}, label=name,
        )
        for name, make in {
            "fp32": pair, "i32": lambda rng: ints(rng, np.int32), "u16": lambda rng: ints(rng, np.uint16),
        }.items()
    ),
    *(
        Case(
            mul_high, f"x:*u{width} y:*u{width} out:*u{width}",
            lambda rng, dtype=dtype: [*ints(rng, dtype), np.zeros(B, dtype)],
            lambda x, y, out, width=width: {2: np.array([int(a) * int(b) >> width for a, b in zip(x, y)], x.dtype)},
            {"B": B}, label=str(width),
        )
        for width, dtype in ((32, np.uint32), (64, np.uint64))
    ),
    Case(
        more_math, "x:*fp32 out:*fp32", lambda rng: [floats(rng), np.zeros(4 * B, np.float32)], more_want, {"B": B},
    ),
    Case(
        random_numbers, "out:*fp32 ints:*i32 seed:i32",
        lambda rng: [np.zeros(B, np.float32), np.zeros(B, np.int32), 1234], random_want, {"B": B},
    ),
    Case(
        scalars, "x:*fp64 out:*fp64 a:fp64 b:i32 flag:i1", lambda rng: [np.array([2.5]), np.zeros(1), 1.5, -3, 1],
        lambda x, out, a, b, flag: {1: np.array([0.75])},
    ),
]  # fmt: skip
