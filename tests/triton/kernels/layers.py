"""Rows: norms, losses, products of a layer, with sizes that are no powers of two."""

import numpy as np
import triton
import triton.language as tl

from tests.triton.corpus import Case

ROWS, COLUMNS, BLOCK = 5, 50, 64


@triton.jit
def layer_norm(x, w, y, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * n + i, mask=i < n, other=0)
    mean = tl.sum(v, 0) / n
    d = tl.where(i < n, v - mean, 0.0)
    scale = tl.rsqrt(tl.sum(d * d, 0) / n + 1e-5)
    tl.store(y + row * n + i, d * scale * tl.load(w + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def rms_norm(x, w, y, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * n + i, mask=i < n, other=0)
    tl.store(y + row * n + i, v / tl.sqrt(tl.sum(v * v, 0) / n + 1e-5) * tl.load(w + i, mask=i < n), mask=i < n)


@triton.jit
def rms_norm_backward(x, w, y, n, B: tl.constexpr):
    """The gradient for an upstream one of ones."""
    row, i = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * n + i, mask=i < n, other=0)
    g = tl.load(w + i, mask=i < n, other=0)
    r = 1 / tl.sqrt(tl.sum(v * v, 0) / n + 1e-5)
    tl.store(y + row * n + i, r * g - r * r * r * v * (tl.sum(g * v, 0) / n), mask=i < n)


@triton.jit
def unit_norm(x, w, y, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * n + i, mask=i < n, other=0)
    norm = tl.sqrt(tl.sum(v * v, 0))
    tl.store(y + row * n + i, v / tl.maximum(norm, 1e-6), mask=i < n)


@triton.jit
def log_softmax(x, w, y, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    top = tl.max(v, 0)
    tl.store(y + row * n + i, v - top - tl.log(tl.sum(tl.exp(v - top), 0)), mask=i < n)


@triton.jit
def softmax_online(x, w, y, n, B: tl.constexpr):
    """In pieces of 16, with a running maximum and sum, as attention does it."""
    row = tl.program_id(0)
    top, total = -float("inf"), 0.0
    for start in range(0, n, 16):
        i = start + tl.arange(0, 16)
        v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
        new = tl.maximum(top, tl.max(v, 0))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(v - new), 0)
        top = new
    i = tl.arange(0, B)
    v = tl.load(x + row * n + i, mask=i < n)
    tl.store(y + row * n + i, tl.exp(v - top) / total, mask=i < n)


@triton.jit
def softmax_backward(x, w, y, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    p = e / tl.sum(e, 0)
    g = tl.load(w + i, mask=i < n, other=0)
    tl.store(y + row * n + i, p * (g - tl.sum(p * g, 0)), mask=i < n)


@triton.jit
def temperature(x, w, y, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    t = tl.load(w + row)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf")) * (1 + t * t)
    e = tl.exp2(v - tl.max(v, 0))
    tl.store(y + row * n + i, e / tl.sum(e, 0), mask=i < n)


@triton.jit
def running_mean(x, w, y, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * n + i, mask=i < n, other=0)
    tl.store(y + row * n + i, tl.cumsum(v, 0) / (i + 1), mask=i < n)


@triton.jit
def centred(x, w, y, n, B: tl.constexpr):
    """Minus the mean of the column: the loop goes over rows."""
    i = tl.arange(0, B)
    total = tl.zeros((B,), tl.float32)
    for r in range(tl.num_programs(0)):
        total += tl.load(x + r * n + i, mask=i < n, other=0)
    row = tl.program_id(0)
    v = tl.load(x + row * n + i, mask=i < n)
    tl.store(y + row * n + i, v - total / tl.num_programs(0), mask=i < n)


@triton.jit
def rotary(x, w, y, n, B: tl.constexpr):
    """Pairs of neighbours turned by the row's number times a frequency."""
    row, i = tl.program_id(0), tl.arange(0, B)
    half = i // 2
    angle = row * tl.exp2(half.to(tl.float32) * -0.25)
    v = tl.load(x + row * n + i, mask=i < n)
    other = tl.load(x + row * n + (i ^ 1), mask=i < n)
    turned = tl.where(i % 2 == 0, -other, other)
    tl.store(y + row * n + i, v * tl.cos(angle) + turned * tl.sin(angle), mask=i < n)


@triton.jit
def dropped(x, w, y, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    keep = (i * 7 + row * 3) % 10 >= 3
    v = tl.load(x + row * n + i, mask=(i < n) & keep, other=0)
    tl.store(y + row * n + i, v / 0.75, mask=i < n)


@triton.jit
def absolute_maximum_scale(x, w, y, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * n + i, mask=i < n, other=0)
    scale = tl.max(tl.abs(v), 0) / 127
    q = (v / scale + tl.where(v < 0, -0.5, 0.5)).to(tl.int8)
    tl.store(y + row * n + i, q.to(tl.float32) * scale, mask=i < n)


def p(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def turned(x):
    rows, columns = np.arange(len(x))[:, None], np.arange(x.shape[1])[None, :]
    angle = rows * np.exp2(columns // 2 * -0.25)
    other = x[:, np.arange(x.shape[1]) ^ 1]
    return x * np.cos(angle) + np.where(columns % 2 == 0, -other, other) * np.sin(angle)


def rms_gradient(x, w):
    r = 1 / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5)
    return r * w - r**3 * x * (w * x).mean(1, keepdims=True)


def scaled(x):
    scale = np.abs(x).max(1, keepdims=True) / 127
    return np.trunc(x / scale + np.where(x < 0, -0.5, 0.5)) * scale


def by_temperature(x, w):
    return p(np.log(2) * x * (1 + w[: len(x), None] ** 2))


OF_ROWS = {
    layer_norm: lambda x, w: (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * w + 1,
    rms_norm: lambda x, w: x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5) * w,
    rms_norm_backward: rms_gradient,
    unit_norm: lambda x, w: x / np.sqrt((x * x).sum(1, keepdims=True)),
    log_softmax: lambda x, w: np.log(p(x)),
    softmax_online: lambda x, w: p(x),
    softmax_backward: lambda x, w: p(x) * (w - (p(x) * w).sum(1, keepdims=True)),
    temperature: by_temperature,
    running_mean: lambda x, w: x.cumsum(1) / np.arange(1, x.shape[1] + 1),
    centred: lambda x, w: x - x.mean(0),
    rotary: lambda x, w: turned(x),
    dropped: lambda x, w: np.where((np.arange(COLUMNS) * 7 + np.arange(ROWS)[:, None] * 3) % 10 >= 3, x / 0.75, 0),
    absolute_maximum_scale: lambda x, w: scaled(x),
}


@triton.jit
def cross_entropy(x, t, out, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    target = tl.load(t + row)
    if target < 0:
        tl.store(out + row, 0.0)
        return
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    top = tl.max(v, 0)
    tl.store(out + row, tl.log(tl.sum(tl.exp(v - top), 0)) + top - tl.load(x + row * n + target))


@triton.jit
def label_smoothing(x, t, out, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    target = tl.maximum(tl.load(t + row), 0)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    top = tl.max(v, 0)
    lse = tl.log(tl.sum(tl.exp(v - top), 0)) + top
    log_p = tl.where(i < n, v - lse, 0.0)
    chosen = tl.sum(tl.where(i == target, log_p, 0.0), 0)
    tl.store(out + row, -0.9 * chosen - 0.1 * tl.sum(log_p, 0) / n)


@triton.jit
def hinge(x, t, out, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    target = tl.maximum(tl.load(t + row), 0)
    margin = tl.load(x + row * n + i, mask=i < n, other=0) - tl.load(x + row * n + target) + 1
    tl.store(out + row, tl.sum(tl.where((i < n) & (i != target), tl.maximum(margin, 0.0), 0.0), 0) / n)


@triton.jit
def rank_of_target(x, t, out, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    target = tl.maximum(tl.load(t + row), 0)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    tl.store(out + row, tl.sum((v > tl.load(x + row * n + target)).to(tl.int32), 0).to(tl.float32))


@triton.jit
def huber(x, t, out, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    d = tl.load(x + row * n + i, mask=i < n, other=0) - tl.load(t + row).to(tl.float32)
    a = tl.abs(d)
    loss = tl.where(a < 1, 0.5 * d * d, a - 0.5)
    tl.store(out + row, tl.sum(tl.where(i < n, loss, 0.0), 0) / n)


@triton.jit
def margin_of_two_best(x, t, out, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    best = tl.argmax(v, 0)
    rest = tl.where(i == best, -float("inf"), v)
    tl.store(out + row, tl.max(v, 0) - tl.max(rest, 0))


def entropy(x, t):
    return np.where(t < 0, 0, -np.log(p(x))[np.arange(len(x)), np.maximum(t, 0)])


def smoothed(x, t):
    log_p = np.log(p(x))
    return -0.9 * log_p[np.arange(len(x)), np.maximum(t, 0)] - 0.1 * log_p.mean(1)


def hinged(x, t):
    t = np.maximum(t, 0)
    margin = np.maximum(x - x[np.arange(len(x)), t][:, None] + 1, 0)
    margin[np.arange(len(x)), t] = 0
    return margin.mean(1)


def ranked(x, t):
    return (x > x[np.arange(len(x)), np.maximum(t, 0)][:, None]).sum(1)


def hubered(x, t):
    d = x - t[:, None]
    return np.where(np.abs(d) < 1, d * d / 2, np.abs(d) - 0.5).mean(1)


LOSSES = {
    cross_entropy: entropy,
    label_smoothing: smoothed,
    hinge: hinged,
    rank_of_target: ranked,
    huber: hubered,
    margin_of_two_best: lambda x, t: np.sort(x, 1)[:, -1] - np.sort(x, 1)[:, -2],
}


def rows(rng):
    x = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32) * 2
    return [x, rng.normal(size=COLUMNS).astype(np.float32), np.zeros_like(x), COLUMNS]


def scored(rng):
    x = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32) * 2
    return [x, np.array([3, 49, -1, 0, 17], np.int32), np.zeros(ROWS, np.float32), COLUMNS]


def in_doubles(want):
    return lambda x, w, y, n: {2: want(x.astype(np.float64), w).astype(np.float32)}


CASES = [
    *(
        Case(kernel, "x:*fp32 w:*fp32 y:*fp32 n:i32", rows, in_doubles(want), {"B": BLOCK}, (ROWS,), rtol=1e-5, atol=2e-6)
        for kernel, want in OF_ROWS.items()
    ),
    *(
        Case(kernel, "x:*fp32 t:*i32 out:*fp32 n:i32", scored, in_doubles(want), {"B": BLOCK}, (ROWS,), rtol=1e-5, atol=2e-6)
        for kernel, want in LOSSES.items()
    ),
]  # fmt: skip
