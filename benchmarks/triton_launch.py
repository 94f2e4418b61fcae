"""What a launch of a Triton kernel costs the host: the short way in C++ against Triton's own, and against torch's add_; interleaved.

    python -m benchmarks.triton_launch

Host time only: the stream is held meanwhile. harness.py says what is printed.
"""

import torch
import triton
import triton.language as tl

from benchmarks.harness import Work, Workload, host_seconds, main, tensors


@triton.jit
def add(x, y, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + i, mask=i < n)
    tl.store(out + i, a + tl.load(y + i, mask=i < n), mask=i < n)


def by_triton() -> Work:
    x, y = tensors("accel", 1024)
    return lambda: add.run(x, y, x, 1024, grid=(1,), warmup=False, B=1024)


def short() -> Work:
    x, y = tensors("accel", 1024)
    return lambda: add[(1,)](x, y, x, 1024, B=1024)


def short_with_grid_function() -> Work:
    x, y = tensors("accel", 1024)
    return lambda: add[lambda meta: (triton.cdiv(1024, meta["B"]),)](x, y, x, 1024, B=1024)


def by_torch() -> Work:
    x, y = tensors("accel", 1024)
    return lambda: torch.add(x, y, out=x)


WORKLOADS = [
    Workload("add[grid]", by_triton, short, 200),
    Workload("add[function]", by_triton, short_with_grid_function, 200),
    Workload("torch.add(out=)", by_triton, by_torch, 200),
]

if __name__ == "__main__":
    main(__doc__, WORKLOADS, base="Triton's way", other="this", clock=host_seconds)
