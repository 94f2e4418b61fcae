"""What the checks of Triton kernels cost: the same launch with a check and without, interleaved.

    OMP_NUM_THREADS=1 python -m benchmarks.triton_checks

harness.py says what is printed. The kernels are those of benchmarks/triton.py, and a gather of rows.
"""

import os

if "OMP_NUM_THREADS" in os.environ:
    os.environ.setdefault("ACCEL_CORES", os.environ["OMP_NUM_THREADS"])

import functools
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from benchmarks import triton_kernels as kernels
from benchmarks.harness import Target, Work, Workload, main, tensors


@triton.jit
def _gather(x, index, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + tl.load(index + i, mask=i < n), mask=i < n), mask=i < n)


def gather(index: torch.Tensor, x: torch.Tensor, out: torch.Tensor, **options: Any) -> None:
    """``torch.index_select(x, 0, index, out=out)``: contiguous vectors."""
    n = index.numel()
    _gather[(triton.cdiv(n, 1024),)](x, index, out, n, B=1024, **options)


def launch(kernel: Callable[..., None], given: list[torch.Tensor], check: str) -> Work:
    """A kernel on tensors, with the result in a new one like the last of them."""
    return functools.partial(kernel, *given, torch.empty_like(given[-1]), check=check)


def pair(name: str, kernel: Callable[..., None], make: Callable[[], list[torch.Tensor]], calls: int) -> Workload:
    """Without against with the check of bounds."""
    target = Target(1.05)
    return Workload(
        name, lambda: launch(kernel, make(), "none"), lambda: launch(kernel, make(), "oob"), calls, target=target
    )


def indexed() -> list[torch.Tensor]:
    """As many places as there are floats, and the floats."""
    generator = torch.Generator().manual_seed(0)
    (x,) = tensors("accel", 1 << 20, count=1)
    return [torch.randint(1 << 20, (1 << 20,), generator=generator, dtype=torch.int32).to("accel"), x]


WORKLOADS = [
    pair("add, 64K", kernels.add, lambda: tensors("accel", 1 << 16), 100),
    pair("add, 1M", kernels.add, lambda: tensors("accel", 1 << 20), 20),
    pair("softmax, 2048x1024", kernels.softmax, lambda: tensors("accel", 2048, 1024, count=1), 5),
    pair("softmax, 2048x781", kernels.softmax, lambda: tensors("accel", 2048, 781, count=1), 5),
    pair("matmul, 512", kernels.matmul, lambda: tensors("accel", 512, 512), 5),
    pair("gather, 1M", gather, indexed, 10),
]

if __name__ == "__main__":
    main(__doc__, WORKLOADS, base="no check", other="bounds checked")
