"""The target `npu`: kernels that show what its passes do, and what a launch computes and moves there."""

import functools

import numpy as np
import triton
import triton.language as tl

from tests.triton.corpus import Case, cases, modules, run
from torch_accel.triton import frontend, passes
from torch_accel.triton.interpret import machine, tile
from torch_accel.triton.target import NPU


@triton.jit
def copy(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def turned(x, y, m, n, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    inside = (i < m) & (n > j) & ((i + j) % 3 != 1)
    tl.store(
        y + j * M + i,
        tl.load(x + i * N + j, mask=inside, other=-1) + i,
        mask=(i + 5 < m) & (j >= 2) & ((i ^ j) % 5 != 0),
    )


@triton.jit
def tripled(x, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x + i, tl.load(x + i, mask=i < n) * 3 + i, mask=i < n)


@triton.jit
def running(x, n, B: tl.constexpr):
    i = tl.arange(0, B)
    for k in range(n):
        tl.store(x + (k + 1) * B + i, tl.load(x + k * B + i) + 1)


@triton.jit
def summed(x, y, start, n, step, B: tl.constexpr):
    """Pointers that move, and a loop that may have no turn."""
    i = tl.arange(0, B)
    p, total = x + i, tl.zeros([B], tl.float32)
    for k in range(start, n, step):
        total += tl.load(p, mask=i < n - k, other=0.5)
        p += step
    tl.store(y + i, total)


@triton.jit
def half_product(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x, y = tl.load(a + i[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + j[None, :])
    at = c + i[:, None] * N + j[None, :]
    tl.store(at, tl.dot(x, y, tl.load(at), out_dtype=tl.float16))


@triton.jit
def summed_product(a, b, c, M: tl.constexpr, K: tl.constexpr):
    """A -0 in the sum stays where +0 is not added."""
    i, k = tl.arange(0, M), tl.arange(0, K)
    x, y = tl.load(a + i[:, None] * K + k[None, :]), tl.load(b + k[:, None] * M + i[None, :])
    at = c + i[:, None] * M + i[None, :]
    tl.store(at, tl.dot(x, y, tl.load(at), input_precision="ieee"))


@triton.jit
def counted(x, out, old, n, B: tl.constexpr):
    i = tl.arange(0, B)
    place = tl.load(x + i) & 7
    tl.store(old + i, tl.atomic_add(out + place, i, mask=i < n))


@triton.jit
def row_total(x, y, N: tl.constexpr):
    tl.store(y, tl.sum(tl.load(x + tl.arange(0, N)), 0))


def ints(count, rng):
    return rng.integers(-1000, 1000, count, dtype=np.int32)


def floats(shape, rng, dtype=np.float32):
    return rng.normal(size=shape).astype(dtype)


def nothing(**arguments):
    return {}


CASES = [
    Case(copy, "x:*i32 y:*i32 n:i32", lambda rng: [ints(700, rng), ints(700, rng), 700], nothing, {"B": 256}, (3,)),
    Case(copy, "x:*i32 y:*i32 n:i32", lambda rng: [ints(1 << 18, rng), ints(1 << 18, rng), 250001], nothing, {"B": 1 << 17}, (2,), label="large"),
    Case(turned, "x:*i32 y:*i32 m:i32 n:i32", lambda rng: [ints(1 << 16, rng), ints(1 << 16, rng), 250, 120], nothing, {"M": 512, "N": 128}),
    Case(tripled, "x:*i32 n:i32", lambda rng: [ints(1 << 17, rng), 100001], nothing, {"B": 1 << 17}),
    Case(running, "x:*i32 n:i32", lambda rng: [ints(64, rng), 5], nothing, {"B": 8}),
    *(
        Case(summed, "x:*fp32 y:*fp32 start:i32 n:i32 step:i32", lambda rng, b=bounds: [floats(64, rng), floats(16, rng), *b], nothing, {"B": 16}, label=str(bounds[1]))
        for bounds in ((0, 63, 7), (3, 3, 1), (-5, 41, 16))
    ),
    Case(counted, "x:*i32 out:*i32 old:*i32 n:i32", lambda rng: [ints(32, rng), ints(8, rng), ints(32, rng), 25], nothing, {"B": 32}),
    Case(half_product, "a:*fp16 b:*fp16 c:*fp16", lambda rng: [floats(s, rng, np.float16) for s in ((16, 128), (128, 64), (16, 64))], nothing, {"M": 16, "N": 64, "K": 128}),
    Case(summed_product, "a:*fp32 b:*fp32 c:*fp32", lambda rng: [floats(s, rng) for s in ((16, 128), (128, 16), (16, 16))], nothing, {"M": 16, "K": 128}, label="long"),
    Case(summed_product, "a:*fp32 b:*fp32 c:*fp32", lambda rng: [np.full((16, 16), -0.0, np.float32), np.full((16, 16), 0.0, np.float32), np.full((16, 16), -0.0, np.float32)], nothing, {"M": 16, "K": 16}, label="of zeros"),
]  # fmt: skip


@functools.cache
def known():
    """The cases of the corpus and those of this file, by name."""
    own = {case.name: case for case in CASES}
    assert not own.keys() & cases().keys()
    return cases() | own


def tile_ir(name):
    """The tile IR of a case."""
    if name in cases():
        return modules(name)[1]
    case = known()[name]
    return frontend.tile_ir(case.kernel, case.types(), case.constants)


def npu_ir(name, **options):
    """What a case is on the npu: verified for it."""
    return passes.machine_ir(tile_ir(name), target=NPU, **options)


def compare(name, module=None):
    """Raises AssertionError where a case gives other bits on the npu than at the tile level, by any schedule of DMA."""
    case = known()[name]
    kernel = case.kernel.fn.__name__
    module = npu_ir(name) if module is None else module
    want = run(tile.run, tile_ir(name), kernel, case.grid, case.arguments())
    for schedule in ("late", "early", 1):
        entry = functools.partial(machine.run, schedule=schedule)
        got = run(entry, module, kernel, case.grid, case.arguments())
        for number, (one, other) in enumerate(zip(want, got)):
            same = not isinstance(one, np.ndarray) or one.tobytes() == other.tobytes()
            assert same, f"argument {number} of '{name}' differs, dma {schedule}"
