"""What a launch of a Triton kernel costs the host: the short way in C++ against Triton's own, and against torch's add_; interleaved.

    python -m benchmarks.triton_launch

Host time only: the stream is held meanwhile. harness.py says what is printed.
"""

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from benchmarks.harness import Work, Workload, host_seconds, main, tensors
from torch_accel.triton.backend import shortcut


@triton.jit
def add(x, y, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + i, mask=i < n)
    tl.store(out + i, a + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def move(source, target):
    target.store([0, 0], source.load([0, 0]))


def by_triton() -> Work:
    x, y = tensors("accel", 1024)
    add[(1,)](x, y, x, 1024, B=1024)  # makes accel the active driver
    tritons = shortcut._TRITONS["run"]
    return lambda: tritons(add, x, y, x, 1024, grid=(1,), warmup=False, B=1024)


def short() -> Work:
    x, y = tensors("accel", 1024)
    return lambda: add[(1,)](x, y, x, 1024, B=1024)


def short_with_grid_function() -> Work:
    x, y = tensors("accel", 1024)
    return lambda: add[lambda meta: (triton.cdiv(1024, meta["B"]),)](x, y, x, 1024, B=1024)


def tuned(run: Callable[..., Any] | None = None) -> Work:
    """Launches of an autotuned kernel that has been tuned; ``run`` in the place of JITFunction's."""
    x, y = tensors("accel", 1024)
    kernel = triton.autotune([triton.Config({"B": size}) for size in (512, 1024)], key=["n"])(add)
    launch = kernel[(1,)]
    launch(x, y, x, 1024)
    if run is None:
        return lambda: launch(x, y, x, 1024)
    short = triton.JITFunction.run

    def work() -> None:
        triton.JITFunction.run = run
        launch(x, y, x, 1024)
        triton.JITFunction.run = short

    return work


def tuned_by_triton() -> Work:
    add[(1,)](*tensors("accel", 1024), tensors("accel", 1024)[0], 1024, B=1024)
    return tuned(shortcut._TRITONS["run"])


def described(launch: Callable[[Any, Any], object]) -> Work:
    x, y = tensors("accel", 16, 64)
    given = [TensorDescriptor.from_tensor(t, [16, 64]) for t in (x, y)]
    move[(1,)](*given)
    return lambda: launch(*given)


def by_torch() -> Work:
    x, y = tensors("accel", 1024)
    return lambda: torch.add(x, y, out=x)


WORKLOADS = [
    Workload("add[grid]", by_triton, short, 200),
    Workload("add[function]", by_triton, short_with_grid_function, 200),
    Workload("torch.add(out=)", by_triton, by_torch, 200),
    Workload("add[grid], autotuned", tuned_by_triton, tuned, 200),
    Workload(
        "move[grid], of descriptors",
        lambda: described(lambda x, y: shortcut._TRITONS["run"](move, x, y, grid=(1,), warmup=False)),
        lambda: described(move[(1,)]),
        200,
    ),
]

if __name__ == "__main__":
    main(__doc__, WORKLOADS, base="Triton's way", other="this", clock=host_seconds)
