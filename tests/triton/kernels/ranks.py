"""Tiles of rank 0 to 5 and memory of any strides: permuted, transposed, stepped, backwards, broadcast, with odd sizes."""

import numpy as np
import triton
import triton.language as tl

from tests.triton.corpus import Case


@triton.jit
def scalar_chain(x, y):
    a = tl.load(x)
    b = tl.load(x + 1)
    tl.store(y, a * b + a)
    tl.store(y + 1, a // b if a > b else b // a)


@triton.jit
def scalar_loop(x, y):
    total, k = 0, 0
    while total < 40:
        total += tl.load(x + k)
        k += 1
    tl.store(y, total)
    tl.store(y + 1, k)


@triton.jit
def one_element_tile(x, y):
    i = tl.arange(0, 1)
    tl.store(y + i, tl.load(x + i) + tl.sum(tl.load(x + i + 1), 0))
    tl.store(y + 1 + i, tl.full((1,), 9, tl.int32))


@triton.jit
def broadcast_row(x, y):
    m, n = tl.arange(0, 4)[:, None], tl.arange(0, 8)[None, :]
    tl.store(y + m * 8 + n, tl.load(x + n) * 10 + m)


@triton.jit
def broadcast_stride_zero(x, y, stride):
    m, n = tl.arange(0, 4)[:, None], tl.arange(0, 8)[None, :]
    tl.store(y + m * 8 + n, tl.load(x + m * stride + n))


@triton.jit
def transposed_by_strides(x, y):
    m, n = tl.arange(0, 4)[:, None], tl.arange(0, 8)[None, :]
    tl.store(y + n * 4 + m, tl.load(x + m * 8 + n))


@triton.jit
def transposed_by_value(x, y):
    m, n = tl.arange(0, 4)[:, None], tl.arange(0, 8)[None, :]
    rows, columns = tl.arange(0, 8)[:, None], tl.arange(0, 4)[None, :]
    tl.store(y + rows * 4 + columns, tl.trans(tl.load(x + m * 8 + n)))


@triton.jit
def every_third(x, y):
    i = tl.arange(0, 16)
    tl.store(y + i, tl.load(x + 3 * i, mask=3 * i < 32, other=-1))


@triton.jit
def backwards(x, y):
    i = tl.arange(0, 32)
    tl.store(y + 31 - i, tl.load(x + i))


@triton.jit
def by_two_programs(x, y):
    m = (tl.program_id(0) * 2 + tl.arange(0, 2))[:, None]
    n = (tl.program_id(1) * 4 + tl.arange(0, 4))[None, :]
    tl.store(y + m * 8 + n, tl.load(x + n * 4 + m))


@triton.jit
def odd_corner(x, y, rows, columns):
    m, n = tl.arange(0, 4)[:, None], tl.arange(0, 8)[None, :]
    inside = (m < rows) & (n < columns)
    tl.store(y + m * 8 + n, tl.load(x + m * columns + n, mask=inside, other=-5), mask=m < 4)


@triton.jit
def checkers(x, y):
    m, n = tl.arange(0, 4)[:, None], tl.arange(0, 8)[None, :]
    black = (m + n) % 2 == 0
    v = tl.load(x + m * 8 + n, mask=black, other=0)
    tl.store(y + m * 8 + n, v, mask=black | (n == 7))


@triton.jit
def cube(x, y):
    a = tl.arange(0, 2)[:, None, None]
    b = tl.arange(0, 4)[None, :, None]
    c = tl.arange(0, 4)[None, None, :]
    v = tl.load(x + a * 16 + b * 4 + c)
    tl.store(y + a * 16 + c * 4 + b, tl.permute(tl.permute(v, 0, 2, 1), 0, 2, 1) + a)


@triton.jit
def cube_sums(x, y):
    a = tl.arange(0, 2)[:, None, None]
    b = tl.arange(0, 4)[None, :, None]
    c = tl.arange(0, 4)[None, None, :]
    v = tl.load(x + a * 16 + b * 4 + c)
    m, n = tl.arange(0, 2)[:, None], tl.arange(0, 4)[None, :]
    tl.store(y + m * 4 + n, tl.sum(v, 2))
    tl.store(y + 8 + m * 4 + n, tl.max(v, 1))
    tl.store(y + 16 + tl.arange(0, 4)[:, None] * 4 + n, tl.min(v, 0))


@triton.jit
def four_dimensions(x, y):
    v = tl.load(x + tl.arange(0, 32))
    v = tl.reshape(v, (2, 2, 4, 2))
    v = tl.permute(v, 3, 1, 0, 2)
    tl.store(y + tl.arange(0, 32), tl.reshape(v, (32,)))


@triton.jit
def five_dimensions(x, y):
    v = tl.reshape(tl.load(x + tl.arange(0, 32)), (2, 2, 2, 2, 2))
    v = tl.permute(v, 4, 2, 0, 3, 1) + tl.sum(v, 3, keep_dims=True)
    tl.store(y + tl.arange(0, 32), tl.reshape(v, (32,)))


@triton.jit
def nested_tiles(x, y):
    """Rows by a loop, halves of rows by a loop inside."""
    for m in range(4):
        for h in tl.static_range(2):
            i = m * 8 + h * 4 + tl.arange(0, 4)
            tl.store(y + i, tl.load(x + i) + m * h)


@triton.jit
def pointers_by_step(x, y):
    """Pointers that a loop moves on."""
    source, target = x + tl.arange(0, 8), y + tl.arange(0, 8)
    for _ in range(4):
        tl.store(target, tl.load(source) * 2)
        source += 8
        target += 8


@triton.jit
def view_of_bytes(x, y):
    """Bytes of an i32, by a pointer to i8."""
    i = tl.arange(0, 32)
    low = tl.load(x.to(tl.pointer_type(tl.int8)) + 4 * i)
    tl.store(y + i, low.to(tl.int32))


X = np.arange(32, dtype=np.int32) * 3 + 1
GRID = X.reshape(4, 8)
BLOCK = X.reshape(2, 4, 4)


def corner(x):
    y = np.full((4, 8), -5)
    y[:3, :7] = x[:21].reshape(3, 7)
    return y


def checked(x):
    m, n = np.indices((4, 8))
    black = (m + n) % 2 == 0
    return np.where(black, GRID, np.where(n == 7, 0, 0))


def five(x):
    v = x.reshape(2, 2, 2, 2, 2)
    return v.transpose(4, 2, 0, 3, 1) + v.sum(3, keepdims=True)


def bytes_of(x):
    return x.view(np.int8)[::4].astype(np.int32)


WANT = {
    scalar_chain: lambda x: [1 * 4 + 1, 4],
    scalar_loop: lambda x: [1 + 4 + 7 + 10 + 13 + 16, 6],
    one_element_tile: lambda x: [5, 9],
    broadcast_row: lambda x: x[:8] * 10 + np.arange(4)[:, None],
    broadcast_stride_zero: lambda x: np.tile(x[:8], 4),
    transposed_by_strides: lambda x: GRID.T,
    transposed_by_value: lambda x: GRID.T,
    every_third: lambda x: np.pad(x[::3], (0, 5), constant_values=-1),
    backwards: lambda x: x[::-1],
    by_two_programs: lambda x: x.reshape(8, 4).T,
    odd_corner: corner,
    checkers: checked,
    cube: lambda x: (BLOCK + np.arange(2)[:, None, None]).transpose(0, 2, 1),
    cube_sums: lambda x: np.concatenate([BLOCK.sum(2).ravel(), BLOCK.max(1).ravel(), BLOCK.min(0).ravel()]),
    four_dimensions: lambda x: x.reshape(2, 2, 4, 2).transpose(3, 1, 0, 2),
    five_dimensions: five,
    nested_tiles: lambda x: GRID + np.arange(4)[:, None] * np.repeat([0, 1], 4),
    pointers_by_step: lambda x: x * 2,
    view_of_bytes: bytes_of,
}
EXTRA = {broadcast_stride_zero: ("stride", [0]), odd_corner: ("rows columns", [3, 7])}
GRIDS = {by_two_programs: (2, 2)}


def case(kernel, want):
    names, numbers = EXTRA.get(kernel, ("", []))

    def expected(x, y, *_):
        result = np.zeros(32, np.int32)
        flat = np.asarray(want(x)).reshape(-1)
        result[: flat.size] = flat
        return {1: result}

    signature = " ".join(["x:*i32", "y:*i32", *(f"{name}:i32" for name in names.split())])
    return Case(
        kernel, signature, lambda rng: [X, np.zeros(32, np.int32), *numbers], expected, grid=GRIDS.get(kernel, (1,))
    )


CASES = [case(kernel, want) for kernel, want in WANT.items()]
