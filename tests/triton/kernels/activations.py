"""Functions of neural networks, element by element, and their derivatives; 77 elements in two programs of 64."""

import math

import numpy as np
import triton
import triton.language as tl

from tests.triton.corpus import Case

N = 77


@triton.jit
def relu(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.maximum(tl.load(x + i, mask=i < n), 0.0), mask=i < n)


@triton.jit
def leaky_relu(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, tl.where(v > 0, v, 0.125 * v), mask=i < n)


@triton.jit
def relu6(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.clamp(tl.load(x + i, mask=i < n), 0.0, 6.0), mask=i < n)


@triton.jit
def hard_sigmoid(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.clamp(tl.load(x + i, mask=i < n) * 0.25 + 0.5, 0.0, 1.0), mask=i < n)


@triton.jit
def hard_swish(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, v * tl.clamp(v + 3.0, 0.0, 6.0) / 6.0, mask=i < n)


@triton.jit
def sigmoid(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.sigmoid(tl.load(x + i, mask=i < n)), mask=i < n)


@triton.jit
def silu(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, v * tl.sigmoid(v), mask=i < n)


@triton.jit
def silu_backward(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    s = tl.sigmoid(v)
    tl.store(y + i, s * (1 + v * (1 - s)), mask=i < n)


@triton.jit
def gelu(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, 0.5 * v * (1 + tl.erf(v * 0.7071067811865476)), mask=i < n)


@triton.jit
def gelu_tanh(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    z = 0.7978845608028654 * (v + 0.044715 * v * v * v)
    tl.store(y + i, v * tl.sigmoid(2 * z), mask=i < n)


@triton.jit
def softplus(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, tl.where(v > 20, v, tl.log(1 + tl.exp(v))), mask=i < n)


@triton.jit
def elu(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, tl.where(v > 0, v, tl.exp(tl.minimum(v, 0.0)) - 1), mask=i < n)


@triton.jit
def soft_sign(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, v / (1 + tl.abs(v)), mask=i < n)


@triton.jit
def soft_shrink(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, tl.where(v > 0.5, v - 0.5, tl.where(v < -0.5, v + 0.5, 0.0)), mask=i < n)


@triton.jit
def logit(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    p = tl.clamp(tl.load(x + i, mask=i < n) * 0.1 + 0.5, 0.05, 0.95)
    tl.store(y + i, tl.log(p / (1 - p)), mask=i < n)


@triton.jit
def glu(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    gate = tl.load(x + n - 1 - i, mask=i < n)
    tl.store(y + i, tl.load(x + i, mask=i < n) * tl.sigmoid(gate), mask=i < n)


@triton.jit
def sinusoid(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, tl.where(i % 2 == 0, tl.sin(v), tl.cos(v)), mask=i < n)


@triton.jit
def quantised(x, y, n, B: tl.constexpr):
    """To 8 bits and back, half to even."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n) * 8
    down = tl.floor(v)
    rest = v - down
    odd = down.to(tl.int32) % 2 != 0
    up = (rest > 0.5) | ((rest == 0.5) & odd)
    q = tl.clamp(down + up.to(tl.float32), -128.0, 127.0).to(tl.int8)
    tl.store(y + i, q.to(tl.float32) / 8, mask=i < n)


def s(x):
    return 1 / (1 + np.exp(-x))


erf = np.vectorize(math.erf)
WANT = {
    relu: lambda x: np.maximum(x, 0),
    leaky_relu: lambda x: np.where(x > 0, x, x / 8),
    relu6: lambda x: np.clip(x, 0, 6),
    hard_sigmoid: lambda x: np.clip(x / 4 + 0.5, 0, 1),
    hard_swish: lambda x: x * np.clip(x + 3, 0, 6) / 6,
    sigmoid: s,
    silu: lambda x: x * s(x),
    silu_backward: lambda x: s(x) * (1 + x * (1 - s(x))),
    gelu: lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2))),
    gelu_tanh: lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    softplus: np.log1p,
    elu: lambda x: np.where(x > 0, x, np.expm1(x)),
    soft_sign: lambda x: x / (1 + np.abs(x)),
    soft_shrink: lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0),
    logit: lambda x: np.log((p := np.clip(x * 0.1 + 0.5, 0.05, 0.95)) / (1 - p)),
    glu: lambda x: x * s(x[::-1]),
    sinusoid: lambda x: np.where(np.arange(len(x)) % 2 == 0, np.sin(x), np.cos(x)),
    quantised: lambda x: np.clip(np.round(x * 8), -128, 127) / 8,
}
WANT[softplus] = lambda x: np.log1p(np.exp(x))


def make(rng):
    x = (rng.normal(size=N) * 3).astype(np.float32)
    x[:6] = [0, 0.3125, -0.3125, 8, -8, 0.5]
    return [x, np.zeros(N, np.float32), N]


CASES = [
    Case(
        kernel, "x:*fp32 y:*fp32 n:i32", make, lambda x, y, n, want=want: {1: want(x.astype(np.float64)).astype(np.float32)},
        {"B": 64}, (2,), rtol=3e-6, atol=1e-6,
    )
    for kernel, want in WANT.items()
]  # fmt: skip
