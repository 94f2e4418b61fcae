"""Kernels whose programs race when WRONG, each beside its right twin. The access that comes second says so.

Run in order, on one core, most of the wrong ones give the right result too.
"""

import numpy as np
import triton
import triton.language as tl


@triton.jit
def _total(x, out, B: tl.constexpr, WRONG: tl.constexpr):
    part = tl.sum(tl.load(x + tl.program_id(0) * B + tl.arange(0, B)), 0)
    if WRONG:
        tl.store(out, tl.load(out) + part)  # fault
    else:
        tl.atomic_add(out, part)


def a_sum_by_load_and_store(chip, wrong):
    x, out = np.arange(32, dtype=np.float32), chip.array(np.zeros(1, np.float32))
    chip.launch(_total, (4,), chip.array(x), out, B=8, WRONG=wrong)
    return out, x.sum(keepdims=True)


@triton.jit
def _count(x, bins, B: tl.constexpr, WRONG: tl.constexpr):
    bin = tl.load(x + tl.program_id(0) * B + tl.arange(0, B))
    if WRONG:
        tl.store(bins + bin, tl.load(bins + bin) + 1)  # fault
    else:
        tl.atomic_add(bins + bin, 1)


def bins_without_atomics(chip, wrong):
    x, bins = np.array([0, 1, 2, 3, 3, 4, 5, 0], np.int32), chip.array(np.zeros(6, np.int32))
    chip.launch(_count, (2,), chip.array(x), bins, B=4, WRONG=wrong)
    return bins, np.bincount(x, minlength=6).astype(np.int32)


@triton.jit
def _double(x, out, n, STEP: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * STEP + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)  # fault


def tiles_that_overlap(chip, wrong):
    """Both write the same values: a race all the same, and one that pays each element twice."""
    x, out = np.arange(64, dtype=np.float32), chip.empty(64)
    chip.launch(_double, (5 if wrong else 4,), chip.array(x), out, 64, STEP=12 if wrong else 16, B=16)
    return out, x * 2


@triton.jit
def _smooth(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    before = tl.load(x + i - 1, mask=(i > 0) & (i < n), other=0)  # fault
    tl.store(out + i, before + tl.load(x + i, mask=i < n), mask=i < n)


def a_stencil_in_place(chip, wrong):
    x = np.arange(32, dtype=np.float32)
    given = chip.array(x)
    out = given if wrong else chip.empty(32)
    chip.launch(_smooth, (4,), given, out, 32, B=8)
    return out, x + np.concatenate([[0], x[:-1]])


@triton.jit
def _transpose(x, out, B: tl.constexpr):
    m = tl.program_id(0)
    n = tl.arange(0, B)
    tl.store(out + n * B + m, tl.load(x + m * B + n))  # fault


def a_transposition_in_place(chip, wrong):
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    given = chip.array(x)
    out = given if wrong else chip.empty((4, 4))
    chip.launch(_transpose, (4,), given, out, B=4)
    return out, x.T


@triton.jit
def _scan(x, sums, flags, out, B: tl.constexpr, SEM: tl.constexpr):
    k, i = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + k * B + i)
    carry = 0.0
    if k > 0:
        while tl.atomic_add(flags + k - 1, 0, sem=SEM) == 0:
            pass
        carry = tl.load(sums + k - 1)  # fault
    tl.store(sums + k, carry + tl.sum(v, 0))
    tl.debug_barrier()
    tl.atomic_xchg(flags + k, 1, sem=SEM)
    tl.store(out + k * B + i, carry + tl.cumsum(v, 0))


def a_flag_that_orders_nothing(chip, wrong):
    x, sums, flags = np.arange(32, dtype=np.float32), chip.empty(4), chip.array(np.zeros(4, np.int32))
    out = chip.empty(32)
    chip.launch(_scan, (4,), chip.array(x), sums, flags, out, B=8, SEM="relaxed" if wrong else "acq_rel")
    return out, np.cumsum(x, dtype=np.float32)


@triton.jit
def _split(x, parts, arrived, out, B: tl.constexpr, K: tl.constexpr, WRONG: tl.constexpr):
    k = tl.program_id(0)
    tl.store(parts + k, tl.sum(tl.load(x + k * B + tl.arange(0, B)), 0))
    tl.debug_barrier()
    last = k == K - 1 if WRONG else tl.atomic_add(arrived, 1) == K - 1
    if last:
        tl.store(out, tl.sum(tl.load(parts + tl.arange(0, K)), 0))  # fault


def the_last_program_is_not_the_last_to_arrive(chip, wrong):
    x, parts, arrived = np.arange(32, dtype=np.float32), chip.empty(4), chip.array(np.zeros(1, np.int32))
    out = chip.empty(1)
    chip.launch(_split, (4,), chip.array(x), parts, arrived, out, B=8, K=4, WRONG=wrong)
    return out, x.sum(keepdims=True)


@triton.jit
def _locked(x, lock, out, B: tl.constexpr, UNLOCK: tl.constexpr):
    part = tl.sum(tl.load(x + tl.program_id(0) * B + tl.arange(0, B)), 0)
    while tl.atomic_cas(lock, 0, 1, sem="acquire") == 1:
        pass
    tl.store(out, tl.load(out) + part)  # fault
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0, sem=UNLOCK)


def a_lock_opened_too_weakly(chip, wrong):
    x, lock, out = np.arange(32, dtype=np.float32), np.zeros(1, np.int32), chip.array(np.zeros(1, np.float32))
    chip.launch(_locked, (4,), chip.array(x), chip.array(lock), out, B=8, UNLOCK="relaxed" if wrong else "release")
    return out, x.sum(keepdims=True)


@triton.jit
def _status(x, out, status, B: tl.constexpr, WRONG: tl.constexpr):
    k, i = tl.program_id(0), tl.arange(0, B)
    tl.store(out + k * B + i, tl.load(x + k * B + i) + 1)
    if WRONG or k == 0:
        tl.store(status, 1)  # fault


def everybody_writes_the_status(chip, wrong):
    x, out, status = np.arange(32, dtype=np.float32), chip.empty(32), chip.array(np.zeros(1, np.int32))
    chip.launch(_status, (4,), chip.array(x), out, status, B=8, WRONG=wrong)
    return out, x + 1


PROGRAMS = {
    a_sum_by_load_and_store: "out",
    bins_without_atomics: "bins",
    tiles_that_overlap: "out",
    a_stencil_in_place: "x",
    a_transposition_in_place: "x",
    a_flag_that_orders_nothing: "sums",
    the_last_program_is_not_the_last_to_arrive: "parts",
    a_lock_opened_too_weakly: "out",
    everybody_writes_the_status: "status",
}
