"""Kernels that reach out of their arguments when WRONG, each beside its right twin. The wrong line says so."""

import numpy as np
import triton
import triton.language as tl

N = 100


@triton.jit
def _scale(x, out, n, B: tl.constexpr, WRONG: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i) if WRONG else tl.load(x + i, mask=i < n)  # fault
    tl.store(out + i, v * 2, mask=i < n)


def load_without_a_mask(chip, wrong):
    x, out = chip.array(np.arange(N, dtype=np.float32)), chip.empty(N)
    chip.launch(_scale, (4,), x, out, N, B=32, WRONG=wrong)
    return out, np.arange(N, dtype=np.float32) * 2


@triton.jit
def _fill(out, n, B: tl.constexpr, WRONG: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    if WRONG:
        tl.store(out + i, i)  # fault
    else:
        tl.store(out + i, i, mask=i < n)


def store_without_a_mask(chip, wrong):
    out = chip.empty(N, np.int32)
    chip.launch(_fill, (4,), out, N, B=32, WRONG=wrong)
    return out, np.arange(N, dtype=np.int32)


@triton.jit
def _difference(x, out, n, B: tl.constexpr, WRONG: tl.constexpr):
    i = tl.arange(0, B)
    inside = i < n if WRONG else i < n - 1
    after = tl.load(x + i + 1, mask=inside)  # fault
    tl.store(out + i, after - tl.load(x + i, mask=inside), mask=i < n - 1)


def one_beyond_the_end(chip, wrong):
    x, out = chip.array(np.arange(N, dtype=np.float32) ** 2), chip.empty(N - 1)
    chip.launch(_difference, (1,), x, out, N, B=128, WRONG=wrong)
    return out, np.diff(np.arange(N, dtype=np.float32) ** 2)


@triton.jit
def _previous(x, out, n, B: tl.constexpr, WRONG: tl.constexpr):
    i = tl.arange(0, B)
    inside = i < n if WRONG else (i > 0) & (i < n)
    before = tl.load(x + i - 1, mask=inside, other=0)  # fault
    tl.store(out + i, before, mask=i < n)


def one_before_the_start(chip, wrong):
    x, out = chip.array(np.arange(N, dtype=np.float32)), chip.empty(N)
    chip.launch(_previous, (1,), x, out, N, B=128, WRONG=wrong)
    return out, np.concatenate([[0], np.arange(N - 1)]).astype(np.float32)


@triton.jit
def _rows(x, out, rows, columns, M: tl.constexpr, B: tl.constexpr, WRONG: tl.constexpr):
    m, n = tl.arange(0, M)[:, None], tl.arange(0, B)[None, :]
    inside = (m < rows) & (n < columns)
    stride = columns if not WRONG else rows
    v = tl.load(x + m * columns + n, mask=inside, other=0)
    tl.store(out + n * stride + m if WRONG else out + m * stride + n, v, mask=inside)  # fault


def strides_of_the_other_shape(chip, wrong):
    """The result is written transposed into a buffer with too few rows, each shorter than its stride."""
    x = np.arange(6 * 20, dtype=np.float32).reshape(6, 20)
    out = chip.empty((6, 20) if not wrong else (6, 19))
    chip.launch(_rows, (1,), chip.array(x), out, 6, 20, M=8, B=32, WRONG=wrong)
    return out, x


@triton.jit
def _lookup(table, index, out, rows, n, B: tl.constexpr, WRONG: tl.constexpr):
    i = tl.arange(0, B)
    row = tl.load(index + i, mask=i < n, other=0)
    known = i < n if WRONG else (i < n) & (row >= 0) & (row < rows)
    tl.store(out + i, tl.load(table + row, mask=known, other=-1), mask=i < n)  # fault


def an_index_from_memory(chip, wrong):
    table, index = np.arange(10, dtype=np.float32) * 3, np.array([0, 9, 10, 4], np.int32)
    out = chip.empty(4)
    chip.launch(_lookup, (1,), chip.array(table), chip.array(index), out, 10, 4, B=4, WRONG=wrong)
    return out, np.array([0, 27, -1, 12], np.float32)


@triton.jit
def _row_sums(x, out, rows, columns, B: tl.constexpr, WRONG: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, B)
    if WRONG or row < rows:
        total = tl.sum(tl.load(x + row * columns + i, mask=i < columns, other=0), 0)  # fault
        tl.store(out + row, total)


def more_programs_than_rows(chip, wrong):
    x = np.arange(5 * 8, dtype=np.float32).reshape(5, 8)
    out = chip.empty(5)
    chip.launch(_row_sums, (8,), chip.array(x), out, 5, 8, B=8, WRONG=wrong)
    return out, x.sum(1)


@triton.jit
def _halves(x, out, n, B: tl.constexpr, WRONG: tl.constexpr):
    i = tl.arange(0, B)
    bound = n if WRONG else n // 2
    low = tl.load(x + 2 * i, mask=i < bound, other=0)  # fault
    high = tl.load(x + 2 * i + 1, mask=i < n // 2, other=0)
    tl.store(out + i, low + high, mask=i < n // 2)


def a_bound_of_another_array(chip, wrong):
    x, out = np.arange(N, dtype=np.float32), chip.empty(N // 2)
    chip.launch(_halves, (1,), chip.array(x), out, N, B=128, WRONG=wrong)
    return out, x[::2] + x[1::2]


@triton.jit
def _blocks(x, out, rows, columns, M: tl.constexpr, B: tl.constexpr, WRONG: tl.constexpr):
    source = tl.make_block_ptr(x, (rows, columns), (columns, 1), (0, 0), (M, B), (1, 0))
    target = tl.make_block_ptr(out, (rows, columns), (columns, 1), (0, 0), (M, B), (1, 0))
    v = tl.load(source, boundary_check=(0, 1), padding_option="zero")
    if WRONG:
        tl.store(target, v + 1, boundary_check=(1,))  # fault
    else:
        tl.store(target, v + 1, boundary_check=(0, 1))


def a_block_pointer_checked_along_one_axis(chip, wrong):
    x = np.arange(5 * 12, dtype=np.float32).reshape(5, 12)
    out = chip.empty((5, 12))
    chip.launch(_blocks, (1,), chip.array(x), out, 5, 12, M=8, B=16, WRONG=wrong)
    return out, x + 1


PROGRAMS = {
    load_without_a_mask: "x",
    store_without_a_mask: "out",
    one_beyond_the_end: "x",
    one_before_the_start: "x",
    strides_of_the_other_shape: "out",
    an_index_from_memory: "table",
    more_programs_than_rows: "x",
    a_bound_of_another_array: "x",
    a_block_pointer_checked_along_one_axis: "out",
}
