"""Products of matrices: all element types, batched, small, scaled; a whole matrix product and an attention."""

import numpy as np
import torch
import triton
import triton.language as tl

from tests.triton.corpus import Case, stored


@triton.jit
def product(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, T: tl.constexpr):
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x, y = tl.load(a + i[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + j[None, :])
    tl.store(c + i[:, None] * N + j[None, :], tl.dot(x, y, out_dtype=T))


@triton.jit
def batched(a, b, c, B: tl.constexpr, M: tl.constexpr):
    z, i, j = tl.arange(0, B)[:, None, None], tl.arange(0, M)[None, :, None], tl.arange(0, M)[None, None, :]
    at = z * M * M + i * M + j
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at), tl.load(c + at)))


@triton.jit
def matmul(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        r = start + tl.arange(0, BK)
        x = tl.load(a + i[:, None] * k + r[None, :], mask=(i[:, None] < m) & (r[None, :] < k), other=0.0)
        y = tl.load(b + r[:, None] * n + j[None, :], mask=(r[:, None] < k) & (j[None, :] < n), other=0.0)
        acc = tl.dot(x, y, acc, input_precision="tf32")
    tl.store(c + i[:, None] * n + j[None, :], acc, mask=(i[:, None] < m) & (j[None, :] < n))


@triton.jit
def attention(q, k, v, out, n, D: tl.constexpr, B: tl.constexpr):
    i, d = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, D)
    query = tl.load(q + i[:, None] * D + d[None, :])
    top = tl.full([B], -float("inf"), tl.float32)
    norm = tl.zeros([B], tl.float32)
    acc = tl.zeros([B, D], tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * B, B):
        j = start + tl.arange(0, B)
        keys = tl.load(k + j[None, :] * D + d[:, None])
        s = tl.where(i[:, None] >= j[None, :], tl.dot(query, keys) * 0.25, -float("inf"))
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        share = tl.exp(top - new)
        norm = norm * share + tl.sum(p, 1)
        acc = tl.dot(p, tl.load(v + j[:, None] * D + d[None, :]), acc * share[:, None])
        top = new
    tl.store(out + i[:, None] * D + d[None, :], acc / norm[:, None])


@triton.jit
def scaled(
    a,
    sa,
    b,
    sb,
    c,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    KA: tl.constexpr,
    TA: tl.constexpr,
    TB: tl.constexpr,
):
    i, j, k, g = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K), tl.arange(0, K // 32)
    x = tl.load(a + i[:, None] * KA + tl.arange(0, KA)[None, :])
    y = tl.load(b + k[:, None] * N + j[None, :])
    left = tl.load(sa + i[:, None] * (K // 32) + g[None, :])
    right = tl.load(sb + j[:, None] * (K // 32) + g[None, :])
    tl.store(c + i[:, None] * N + j[None, :], tl.dot_scaled(x, left, TA, y, right, TB))


TORCH = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e5": torch.float8_e5m2,
    "fp64": torch.float64,
}


def operands(name, shape=(16, 32, 8)):
    m, k, n = shape

    def make(rng):
        if name == "i8":
            return [rng.integers(-128, 127, s, dtype=np.int8) for s in ((m, k), (k, n))] + [np.zeros((m, n), np.int32)]
        out = np.float64 if name == "fp64" else np.float32
        return [stored(rng.normal(size=s), TORCH[name]) for s in ((m, k), (k, n))] + [np.zeros((m, n), out)]

    return make


def exact(x, name):
    if name == "i8":
        return x.astype(np.int64)
    view = {2: np.int16}.get(x.dtype.itemsize if x.dtype == np.uint16 else 0)
    return torch.from_numpy(x.view(view) if view else x).view(TORCH[name]).double().numpy()


def product_want(name):
    return lambda a, b, c: {2: (exact(a, name) @ exact(b, name)).astype(c.dtype)}


def attention_want(q, k, v, out, n):
    s = np.where(np.tri(n, dtype=bool), q.astype(np.float64) @ k.T.astype(np.float64) * 0.25, -np.inf)
    p = np.exp(s - s.max(1, keepdims=True))
    return {3: (p / p.sum(1, keepdims=True) @ v).astype(np.float32)}


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def scaled_make(packed):
    def make(rng):
        a = (
            rng.integers(0, 256, (16, 32), dtype=np.uint8)
            if packed
            else stored(rng.normal(size=(16, 64)), torch.float8_e4m3fn)
        )
        b = stored(rng.normal(size=(64, 8)), torch.float8_e5m2)
        return [
            a,
            rng.integers(120, 134, (16, 2), dtype=np.uint8),
            b,
            rng.integers(120, 134, (8, 2), dtype=np.uint8),
            np.zeros((16, 8), np.float32),
        ]

    return make


def scaled_want(packed):
    def values(a, sa, b, sb, c):
        left = np.stack([E2M1[a & 15], E2M1[a >> 4]], -1).reshape(16, 64) if packed else exact(a, "fp8e4nv")
        left = left * np.repeat(np.exp2(sa.astype(np.float64) - 127), 32, 1)
        right = exact(b, "fp8e5") * np.repeat(np.exp2(sb.astype(np.float64) - 127), 32, 1).T
        return {4: (left @ right).astype(np.float32)}

    return values


# The order of summation differs from NumPy's: compared within the rounding of 32 to 64 float32 additions of numbers that cancel.
CASES = [
    *(
        Case(
            product, f"a:*{name} b:*{name} c:*{out}", operands(name), product_want(name),
            {"M": 16, "N": 8, "K": 32, "T": getattr(tl, dtype)}, rtol=rtol, label=name,
        )
        for name, out, dtype, rtol in (
            ("fp32", "fp32", "float32", 2e-4), ("fp64", "fp64", "float64", 1e-12), ("fp16", "fp32", "float32", 2e-4),
            ("bf16", "fp32", "float32", 2e-4), ("fp8e4nv", "fp32", "float32", 2e-4), ("fp8e5", "fp32", "float32", 2e-4), ("i8", "i32", "int32", 0),
        )
    ),
    Case(
        product, "a:*fp32 b:*fp32 c:*fp32", operands("fp32", (2, 4, 1)), product_want("fp32"),
        {"M": 2, "N": 1, "K": 4, "T": tl.float32}, rtol=2e-5, label="small",
    ),
    Case(
        batched, "a:*fp32 b:*fp32 c:*fp32", lambda rng: [rng.random((4, 16, 16), np.float32) for _ in range(3)],
        lambda a, b, c: {2: (c.astype(np.float64) + a.astype(np.float64) @ b).astype(np.float32)}, {"B": 4, "M": 16}, rtol=3e-6,
    ),
    Case(
        matmul, "a:*fp32 b:*fp32 c:*fp32 m:i32 n:i32 k:i32",
        lambda rng: [rng.random((20, 50), np.float32), rng.random((50, 30), np.float32), np.zeros((20, 30), np.float32), 20, 30, 50],
        lambda a, b, c, m, n, k: {2: (a.astype(np.float64) @ b).astype(np.float32)}, {"BM": 16, "BN": 16, "BK": 16}, (2, 2), rtol=4e-6,
    ),
    Case(
        attention, "q:*fp32 k:*fp32 v:*fp32 out:*fp32 n:i32",
        lambda rng: [*(rng.random((64, 16), np.float32) for _ in range(3)), np.zeros((64, 16), np.float32), 64], attention_want,
        {"D": 16, "B": 16}, (4,), rtol=4e-6,
    ),
    *(
        Case(
            scaled, f"a:*{'u8' if packed else 'fp8e4nv'} sa:*u8 b:*fp8e5 sb:*u8 c:*fp32", scaled_make(packed), scaled_want(packed),
            {"M": 16, "N": 8, "K": 64, "KA": 32 if packed else 64, "TA": "e2m1" if packed else "e4m3", "TB": "e5m2"}, rtol=1e-3,
            label="e2m1" if packed else "e4m3",
        )
        for packed in (False, True)
    ),
]  # fmt: skip
