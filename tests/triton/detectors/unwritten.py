"""Kernels that read what nothing has written when WRONG, each beside its right twin. The wrong line says so."""

import numpy as np
import triton
import triton.language as tl

N = 60


def _either(chip, wrong, shape, dtype=np.float32):
    return chip.empty(shape, dtype) if wrong else chip.array(np.zeros(shape, dtype))


@triton.jit
def _accumulate(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    before = tl.load(out + i, mask=i < n)  # fault
    tl.store(out + i, before + tl.load(x + i, mask=i < n), mask=i < n)


def adds_to_an_empty_result(chip, wrong):
    x, out = np.arange(N, dtype=np.float32), _either(chip, wrong, N)
    chip.launch(_accumulate, (1,), chip.array(x), out, N, B=64)
    return out, x


@triton.jit
def _count(x, bins, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.atomic_add(bins + tl.load(x + i, mask=i < n, other=0), 1, mask=i < n)  # fault


def counts_in_empty_bins(chip, wrong):
    x, bins = (np.arange(N) % 7).astype(np.int32), _either(chip, wrong, 7, np.int32)
    chip.launch(_count, (1,), chip.array(x), bins, N, B=64)
    return bins, np.bincount(x, minlength=7).astype(np.int32)


@triton.jit
def _partial(x, parts, n, B: tl.constexpr):
    k = tl.program_id(0)
    i = k * B + tl.arange(0, B)
    tl.store(parts + k, tl.sum(tl.load(x + i, mask=i < n, other=0), 0))


@triton.jit
def _finish(parts, out, count, K: tl.constexpr):
    k = tl.arange(0, K)
    tl.store(out, tl.sum(tl.load(parts + k, mask=k < count, other=0), 0))  # fault


def more_partial_sums_than_were_made(chip, wrong):
    x, parts, out = np.arange(N, dtype=np.float32), chip.empty(8), chip.empty(1)
    chip.launch(_partial, (4,), chip.array(x), parts, N, B=16)
    chip.launch(_finish, (1,), parts, out, 8 if wrong else 4, K=8)
    return out, x.sum(keepdims=True)


@triton.jit
def _padded(x, out, rows, columns, width, M: tl.constexpr, B: tl.constexpr, PAD: tl.constexpr):
    m, n = tl.arange(0, M)[:, None], tl.arange(0, B)[None, :]
    v = tl.load(x + m * columns + n, mask=(m < rows) & (n < columns), other=0)
    tl.store(out + m * width + n, v, mask=(m < rows) & (n < (width if PAD else columns)))


@triton.jit
def _row_max(x, out, rows, width, B: tl.constexpr):
    row, n = tl.program_id(0), tl.arange(0, B)
    tl.store(out + row, tl.max(tl.load(x + row * width + n, mask=n < width, other=0), 0))  # fault


def padding_that_nobody_fills(chip, wrong):
    x = np.arange(3 * 5, dtype=np.float32).reshape(3, 5)
    padded, out = chip.empty((3, 8)), chip.empty(3)
    chip.launch(_padded, (1,), chip.array(x), padded, 3, 5, 8, M=4, B=8, PAD=not wrong)
    chip.launch(_row_max, (3,), padded, out, 3, 8, B=8)
    return out, x.max(1)


@triton.jit
def _recur(x, state, out, steps, B: tl.constexpr):
    i = tl.arange(0, B)
    h = tl.load(state + i)  # fault
    for t in range(steps):
        h = h * 0.5 + tl.load(x + t * B + i)
    tl.store(out + i, h)


def a_state_without_a_beginning(chip, wrong):
    x, state, out = np.arange(4 * 8, dtype=np.float32).reshape(4, 8), _either(chip, wrong, 8), chip.empty(8)
    chip.launch(_recur, (1,), chip.array(x), state, out, 4, B=8)
    h = np.zeros(8, np.float32)
    for row in x:
        h = h * np.float32(0.5) + row
    return out, h


@triton.jit
def _positive(x, out, n, B: tl.constexpr, WRONG: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0)
    if WRONG:
        tl.store(out + i, v, mask=(i < n) & (v > 0))
    else:
        tl.store(out + i, tl.maximum(v, 0), mask=i < n)


@triton.jit
def _copy(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)  # fault


def lanes_that_a_mask_left_out(chip, wrong):
    x = np.arange(N, dtype=np.float32) - 30
    middle, out = chip.empty(N), chip.empty(N)
    chip.launch(_positive, (1,), chip.array(x), middle, N, B=64, WRONG=wrong)
    chip.launch(_copy, (1,), middle, out, N, B=64)
    return out, np.maximum(x, 0)


@triton.jit
def _carry(x, carries, B: tl.constexpr):
    k = tl.program_id(0)
    tl.store(carries + k + 1, tl.sum(tl.load(x + k * B + tl.arange(0, B)), 0))
    if k == 0:
        tl.store(carries, 0.0)


@triton.jit
def _carry_without_the_first(x, carries, B: tl.constexpr):
    k = tl.program_id(0)
    tl.store(carries + k + 1, tl.sum(tl.load(x + k * B + tl.arange(0, B)), 0))


@triton.jit
def _offset(x, carries, out, B: tl.constexpr):
    k = tl.program_id(0)
    start = tl.load(carries + k)  # fault
    i = k * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i) + start)


def a_carry_into_the_first_block(chip, wrong):
    x = np.arange(32, dtype=np.float32)
    carries, out, given = chip.empty(5), chip.empty(32), chip.array(x)
    chip.launch(_carry_without_the_first if wrong else _carry, (4,), given, carries, B=8)
    chip.launch(_offset, (4,), given, carries, out, B=8)
    sums = np.concatenate([[0], x.reshape(4, 8).sum(1)[:-1]]).astype(np.float32)
    return out, (x.reshape(4, 8) + sums[:, None]).reshape(-1)


@triton.jit
def _lower(x, out, B: tl.constexpr, WRONG: tl.constexpr):
    m, n = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    v = tl.where(m >= n, tl.load(x + m * B + n), 0)
    if WRONG:
        tl.store(out + m * B + n, v, mask=m >= n)
    else:
        tl.store(out + m * B + n, v)


@triton.jit
def _column_sums(x, out, B: tl.constexpr):
    m, n = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    tl.store(out + tl.arange(0, B), tl.sum(tl.load(x + m * B + n), 0))  # fault


def the_upper_triangle(chip, wrong):
    x = np.arange(8 * 8, dtype=np.float32).reshape(8, 8)
    middle, out = chip.empty((8, 8)), chip.empty(8)
    chip.launch(_lower, (1,), chip.array(x), middle, B=8, WRONG=wrong)
    chip.launch(_column_sums, (1,), middle, out, B=8)
    return out, np.tril(x).sum(0)


PROGRAMS = {
    adds_to_an_empty_result: "out",
    counts_in_empty_bins: "bins",
    more_partial_sums_than_were_made: "parts",
    padding_that_nobody_fills: "x",
    a_state_without_a_beginning: "state",
    lanes_that_a_mask_left_out: "x",
    a_carry_into_the_first_block: "carries",
    the_upper_triangle: "x",
}
