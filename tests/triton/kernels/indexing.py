"""Indices from memory, windows, padding: what a layer reads elsewhere than where it writes."""

import numpy as np
import triton
import triton.language as tl

from tests.triton.corpus import Case

H, W = 6, 7


@triton.jit
def embedding(x, at, y, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    tl.store(y + row * n + i, tl.load(x + tl.load(at + row) * n + i, mask=i < n), mask=i < n)


@triton.jit
def embedding_backward(x, at, y, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    tl.atomic_add(y + tl.load(at + row) * n + i, tl.load(x + row * n + i, mask=i < n), mask=i < n)


@triton.jit
def scatter_rows(x, at, y, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    to = tl.load(at + row)
    tl.store(y + to * n + i, tl.load(x + row * n + i, mask=i < n), mask=(i < n) & (to % 4 != 0))


@triton.jit
def gather_columns(x, at, y, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    place = tl.load(at + i, mask=i < n, other=0)
    tl.store(y + row * n + i, tl.load(x + row * n + place, mask=i < n), mask=i < n)


@triton.jit
def rolled(x, at, y, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    tl.store(y + row * n + i, tl.load(x + row * n + (i + 3) % n, mask=i < n), mask=i < n)


@triton.jit
def reversed_rows(x, at, y, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    last = tl.num_programs(0) - 1
    tl.store(y + (last - row) * n + (n - 1 - i), tl.load(x + row * n + i, mask=i < n), mask=i < n)


@triton.jit
def reflected(x, at, y, n, B: tl.constexpr):
    """Padded by two on the left, by reflection; cut on the right."""
    row, i = tl.program_id(0), tl.arange(0, B)
    tl.store(y + row * n + i, tl.load(x + row * n + tl.abs(i - 2), mask=i < n), mask=i < n)


@triton.jit
def lower_triangle(x, at, y, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    tl.store(y + row * n + i, tl.load(x + row * n + i, mask=(i < n) & (i <= row), other=0), mask=i < n)


@triton.jit
def diagonal(x, at, y, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    tl.store(y + row * n + i, tl.where(i == row, tl.load(x + row * n + row), 0.0), mask=i < n)


@triton.jit
def stencil(x, at, y, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    base = x + row * n + i
    left = tl.load(base - 1, mask=(i > 0) & (i < n), other=0)
    right = tl.load(base + 1, mask=i + 1 < n, other=0)
    tl.store(y + row * n + i, left - 2 * tl.load(base, mask=i < n) + right, mask=i < n)


@triton.jit
def compacted(x, at, y, n, B: tl.constexpr):
    """The positive elements of a row, moved to its beginning."""
    row, i = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * n + i, mask=i < n, other=0)
    keep = (v > 0) & (i < n)
    place = tl.cumsum(keep.to(tl.int32), 0) - 1
    tl.store(y + row * n + place, v, mask=keep)


@triton.jit
def searched(x, at, y, n, B: tl.constexpr):
    """How many of the sorted places are at most the column: by bisection."""
    row, i = tl.program_id(0), tl.arange(0, B)
    low, high = tl.zeros((B,), tl.int32), tl.full((B,), 1, tl.int32) * n
    for _ in range(4):
        middle = (low + high) // 2
        inside = low < high
        less = tl.load(at + n + middle, mask=inside & (i < n), other=0) <= i
        low = tl.where(inside & less, middle + 1, low)
        high = tl.where(inside & ~less, middle, high)
    tl.store(y + row * n + i, low.to(tl.float32), mask=i < n)


@triton.jit
def convolution(x, w, y, ROWS: tl.constexpr, COLUMNS: tl.constexpr, B: tl.constexpr):
    """3 by 3, padded with zeros: a program a row."""
    row, i = tl.program_id(0), tl.arange(0, B)
    total = tl.zeros((B,), tl.float32)
    for r in tl.static_range(3):
        for c in tl.static_range(3):
            a, b = row + r - 1, i + c - 1
            inside = (a >= 0) & (a < ROWS) & (b >= 0) & (b < COLUMNS)
            total += tl.load(x + a * COLUMNS + b, mask=inside, other=0) * tl.load(w + r * 3 + c)
    tl.store(y + row * COLUMNS + i, total, mask=i < COLUMNS)


@triton.jit
def max_pool(x, w, y, ROWS: tl.constexpr, COLUMNS: tl.constexpr, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    best = tl.full((B,), -float("inf"), tl.float32)
    for r in range(2):
        for c in range(2):
            inside = (2 * row + r < ROWS) & (2 * i + c < COLUMNS)
            best = tl.maximum(best, tl.load(x + (2 * row + r) * COLUMNS + 2 * i + c, mask=inside, other=-float("inf")))
    tl.store(y + row * COLUMNS + i, best, mask=2 * i < COLUMNS)


@triton.jit
def upsampled(x, w, y, ROWS: tl.constexpr, COLUMNS: tl.constexpr, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + (row // 2) * COLUMNS + i // 2, mask=i < COLUMNS)
    tl.store(y + row * COLUMNS + i, v, mask=i < COLUMNS)


@triton.jit
def blurred(x, w, y, ROWS: tl.constexpr, COLUMNS: tl.constexpr, B: tl.constexpr):
    """The mean of a window that is cut at the edges: bounds that depend on the row."""
    row, i = tl.program_id(0), tl.arange(0, B)
    total, count = tl.zeros((B,), tl.float32), tl.zeros((B,), tl.float32)
    for r in range(tl.maximum(row - 1, 0), tl.minimum(row + 2, ROWS)):
        for c in range(-1, 2):
            inside = (i + c >= 0) & (i + c < COLUMNS)
            total += tl.load(x + r * COLUMNS + i + c, mask=inside, other=0)
            count += inside.to(tl.float32)
    tl.store(y + row * COLUMNS + i, total / count, mask=i < COLUMNS)


@triton.jit
def summed_area(x, w, y, ROWS: tl.constexpr, COLUMNS: tl.constexpr, B: tl.constexpr):
    r, i = tl.arange(0, 8)[:, None], tl.arange(0, B)[None, :]
    inside = (r < ROWS) & (i < COLUMNS)
    v = tl.load(x + r * COLUMNS + i, mask=inside, other=0)
    if tl.program_id(0) == 0:
        tl.store(y + r * COLUMNS + i, tl.cumsum(tl.cumsum(v, 0), 1), mask=inside)


@triton.jit
def im2col(x, w, y, ROWS: tl.constexpr, COLUMNS: tl.constexpr, B: tl.constexpr):
    """Of windows of 1 by 3, transposed: element (k, i) of row k goes to place i * 3 + k, cut to the row."""
    row, k, i = tl.program_id(0), tl.arange(0, 4)[:, None], tl.arange(0, B)[None, :]
    v = tl.load(x + row * COLUMNS + i + k, mask=(k < 3) & (i + k < COLUMNS), other=0)
    place = i * 3 + k
    tl.store(y + row * COLUMNS + place, v, mask=(k < 3) & (place < COLUMNS))


AT = np.array([4, 0, 4, 2, 5, 1, 0, *sorted([1, 1, 2, 4, 4, 6, 9])], np.int32)


def scattered(x):
    y = np.zeros_like(x)
    for row in range(H):
        if AT[row] % 4 != 0:
            y[AT[row]] = x[row]
    return y


def summed(x):
    y = np.zeros_like(x)
    np.add.at(y, AT[:H], x)
    return y


def squeezed(x):
    y = np.zeros_like(x)
    for row, v in enumerate(x):
        y[row, : (v > 0).sum()] = v[v > 0]
    return y


def stencilled(x):
    padded = np.pad(x, ((0, 0), (1, 1)))
    return padded[:, :-2] - 2 * x + padded[:, 2:]


def windows(x):
    padded = np.pad(x, 1)
    return np.stack([padded[r : r + H, c : c + W] for r in range(3) for c in range(3)])


def pooled(x):
    y = np.zeros_like(x)
    padded = np.pad(x, ((0, 0), (0, 1)), constant_values=-np.inf)
    y[:3, :4] = padded.reshape(3, 2, 4, 2).max((1, 3))
    return y


def columns_of(x):
    y = np.zeros_like(x)
    for place in range(W):
        i, k = divmod(place, 3)
        y[:, place] = x[:, i + k]
    return y


WEIGHTS = np.arange(9, dtype=np.float32) - 4
BY_INDEX = {
    embedding: lambda x: x[AT[:H]],
    embedding_backward: summed,
    scatter_rows: scattered,
    gather_columns: lambda x: x[:, AT[:W]],
    rolled: lambda x: np.roll(x, -3, 1),
    reversed_rows: lambda x: x[::-1, ::-1],
    reflected: lambda x: np.pad(x, ((0, 0), (2, 0)), "reflect")[:, :W],
    lower_triangle: np.tril,
    diagonal: lambda x: np.pad(np.diag(np.diag(x)), ((0, 0), (0, 1))),
    stencil: stencilled,
    compacted: squeezed,
    searched: lambda x: np.broadcast_to(np.searchsorted(AT[W:], np.arange(W), side="right").astype(np.float32), (H, W)),
}
BY_WINDOW = {
    convolution: lambda x: (windows(x) * WEIGHTS[:, None, None]).sum(0),
    max_pool: pooled,
    upsampled: lambda x: np.repeat(np.repeat(x, 2, 0), 2, 1)[:H, :W],
    blurred: lambda x: windows(x).sum(0) / windows(np.ones_like(x)).sum(0),
    summed_area: lambda x: x.cumsum(0).cumsum(1),
    im2col: columns_of,
}
GRIDS = {max_pool: 3}


def image(rng):
    return rng.integers(-8, 9, (H, W)).astype(np.float32)


CASES = [
    *(
        Case(
            kernel, "x:*fp32 at:*i32 y:*fp32 n:i32", lambda rng: [image(rng), AT, np.zeros((H, W), np.float32), W],
            lambda x, at, y, n, want=want: {2: np.ascontiguousarray(want(x))}, {"B": 8}, (H,),
        )
        for kernel, want in BY_INDEX.items()
    ),
    *(
        Case(
            kernel, "x:*fp32 w:*fp32 y:*fp32", lambda rng: [image(rng), WEIGHTS, np.zeros((H, W), np.float32)],
            lambda x, w, y, want=want: {2: want(x).astype(np.float32)}, {"ROWS": H, "COLUMNS": W, "B": 8}, (GRIDS.get(kernel, H),), rtol=1e-6,
        )
        for kernel, want in BY_WINDOW.items()
    ),
]  # fmt: skip
