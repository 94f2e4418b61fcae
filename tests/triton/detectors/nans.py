"""Kernels that make a NaN of numbers when WRONG, each beside its right twin. The line that makes it says so."""

import numpy as np
import triton
import triton.language as tl


@triton.jit
def _softmax(x, out, B: tl.constexpr, WRONG: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    e = tl.exp(v if WRONG else v - tl.max(v, 0))
    tl.store(out + i, e / tl.sum(e, 0))  # fault


def softmax_without_the_maximum(chip, wrong):
    x = np.array([100, 99, 98, 0], np.float32)
    out = chip.empty(4)
    chip.launch(_softmax, (1,), chip.array(x), out, B=4, WRONG=wrong)
    e = np.exp(x - 100)
    return out, e / e.sum()


@triton.jit
def _masked_softmax(x, keep, out, B: tl.constexpr, WRONG: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    v = tl.where(tl.load(keep + row * B + i) != 0, tl.load(x + row * B + i), -float("inf"))
    top = tl.max(v, 0)
    if not WRONG:
        top = tl.where(top == -float("inf"), 0.0, top)
    e = tl.exp(v - top)  # fault
    total = tl.sum(e, 0)
    tl.store(out + row * B + i, e / tl.where(total == 0, 1.0, total))


def a_row_that_is_masked_throughout(chip, wrong):
    x, keep = np.array([[1, 2], [3, 4]], np.float32), np.array([[1, 1], [0, 0]], np.int32)
    out = chip.empty((2, 2))
    chip.launch(_masked_softmax, (2,), chip.array(x), chip.array(keep), out, B=2, WRONG=wrong)
    e = np.exp(np.array([-1, 0], np.float32))
    return out, np.stack([e / e.sum(), np.zeros(2, np.float32)])


@triton.jit
def _deviation(x, out, B: tl.constexpr, WRONG: tl.constexpr):
    v = tl.load(x + tl.arange(0, B))
    mean = tl.sum(v, 0) / B
    variance = tl.sum((v - mean) * (v - mean), 0) / B
    if WRONG:
        variance = tl.sum(v * v, 0) / B - mean * mean - 1e-3
    tl.store(out, tl.sqrt(variance))  # fault


def a_variance_below_zero(chip, wrong):
    out = chip.empty(1)
    chip.launch(_deviation, (1,), chip.array(np.full(8, 3, np.float32)), out, B=8, WRONG=wrong)
    return out, np.zeros(1, np.float32)


@triton.jit
def _segment_means(x, starts, out, B: tl.constexpr, WRONG: tl.constexpr):
    k = tl.program_id(0)
    start, end = tl.load(starts + k), tl.load(starts + k + 1)
    i = start + tl.arange(0, B)
    total = tl.sum(tl.load(x + i, mask=i < end, other=0), 0)
    count = (end - start).to(tl.float32)
    tl.store(out + k, total / (count if WRONG else tl.maximum(count, 1.0)))  # fault


def the_mean_of_nothing(chip, wrong):
    x, starts, out = np.arange(6, dtype=np.float32), np.array([0, 2, 2, 6], np.int32), chip.empty(3)
    chip.launch(_segment_means, (3,), chip.array(x), chip.array(starts), out, B=8, WRONG=wrong)
    return out, np.array([0.5, 0, 3.5], np.float32)


@triton.jit
def _log_loss(p, out, n, B: tl.constexpr, WRONG: tl.constexpr):
    i = tl.arange(0, B)
    q = tl.load(p + i, mask=i < n, other=1)
    if not WRONG:
        q = tl.maximum(q, 1e-6)
    tl.store(out + i, -tl.log(q), mask=i < n)  # fault


def the_logarithm_of_a_negative(chip, wrong):
    p, out = np.array([0.5, 1, -1e-7], np.float32), chip.empty(3)
    chip.launch(_log_loss, (1,), chip.array(p), out, 3, B=4, WRONG=wrong)
    return out, -np.log(np.maximum(p, np.float32(1e-6)))


@triton.jit
def _bias(x, keep, out, B: tl.constexpr, WRONG: tl.constexpr):
    i = tl.arange(0, B)
    k = tl.load(keep + i)
    hidden = (1 - k).to(tl.float32)
    bias = hidden * -float("inf") if WRONG else tl.where(k != 0, 0.0, -float("inf"))  # fault
    tl.store(out + i, tl.load(x + i) + bias)


def a_mask_by_multiplication(chip, wrong):
    x, keep, out = np.ones(4, np.float32), np.array([1, 0, 1, 0], np.int32), chip.empty(4)
    chip.launch(_bias, (1,), chip.array(x), chip.array(keep), out, B=4, WRONG=wrong)
    return out, np.array([1, -np.inf, 1, -np.inf], np.float32)


@triton.jit
def _normalise(x, out, B: tl.constexpr, WRONG: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * B + i)
    norm = tl.sqrt(tl.sum(v * v, 0))
    tl.store(out + row * B + i, v / (norm if WRONG else norm + 1e-6))  # fault


def a_row_of_zeros(chip, wrong):
    x, out = np.array([[3, 4], [0, 0]], np.float32), chip.empty((2, 2))
    chip.launch(_normalise, (2,), chip.array(x), out, B=2, WRONG=wrong)
    return out, x / (np.sqrt((x * x).sum(1, keepdims=True)) + np.float32(1e-6))


@triton.jit
def _merge(a, b, out, B: tl.constexpr, WRONG: tl.constexpr):
    i = tl.arange(0, B)
    p, q = tl.load(a + i), tl.load(b + i)
    top = tl.maximum(p, q)
    if not WRONG:
        top = tl.where(top == -float("inf"), 0.0, top)
    smaller = tl.exp(p - top) + tl.exp(q - top)  # fault
    tl.store(out + i, top + tl.log(smaller))


def two_sums_of_nothing(chip, wrong):
    """log(exp(a) + exp(b)) of two empty sums, as split attention merges them."""
    a, b = np.array([1, -np.inf], np.float32), np.array([2, -np.inf], np.float32)
    out = chip.empty(2)
    chip.launch(_merge, (1,), chip.array(a), chip.array(b), out, B=2, WRONG=wrong)
    return out, np.logaddexp(a, b)


PROGRAMS = {
    softmax_without_the_maximum: "out",
    a_row_that_is_masked_throughout: "out",
    a_variance_below_zero: "out",
    the_mean_of_nothing: "out",
    the_logarithm_of_a_negative: "out",
    a_mask_by_multiplication: "out",
    a_row_of_zeros: "out",
    two_sums_of_nothing: "out",
}
