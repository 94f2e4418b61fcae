"""Triton kernels on accel against torch's own operators on CPU tensors: base/other, more is better.

    OMP_NUM_THREADS=1 python -m benchmarks.triton
    OMP_NUM_THREADS=1 python -m benchmarks.triton --page   # also writes docs/triton.json and the table of docs/triton.md

``OMP_NUM_THREADS`` is the cores of both: of torch, and of the device (``ACCEL_CORES``, unless it is set). harness.py says
what is printed. The results are compared before they are timed.
"""

import atexit
import os
import subprocess
import sys

if "OMP_NUM_THREADS" in os.environ:
    os.environ.setdefault("ACCEL_CORES", os.environ["OMP_NUM_THREADS"])

import torch

from benchmarks import triton_kernels as kernels
from benchmarks import triton_page
from benchmarks.harness import Target, Work, Workload, main, tensors

F = torch.nn.functional


def against(name: str, must: float, kernel, reference, make, calls: int, close: float = 1e-5) -> Workload:
    """``kernel(*inputs, out)`` on accel; ``reference(*inputs, out)`` on the CPU, on the same numbers."""

    def prepared(device: str):
        inputs = make()
        return [t.to(device) for t in inputs]

    def base() -> Work:
        given = prepared("cpu")
        out = torch.empty_like(reference(*given, None))
        return lambda: reference(*given, out)

    def other() -> Work:
        given, on_cpu = prepared("accel"), prepared("cpu")
        expected = reference(*on_cpu, None)
        out = torch.empty_like(expected, device="accel")
        kernel(*given, out)
        torch.testing.assert_close(out.cpu(), expected, rtol=close, atol=close)
        return lambda: kernel(*given, out)

    return Workload(name, base, other, calls, figure="speed", target=Target(must, least=True))


INTERPRETED = {
    "add, 1M in blocks of 1024": (1000, kernels.add, lambda: tensors("cpu", 1 << 20)),
    "softmax, 2048x1024": (1000, kernels.softmax, lambda: tensors("cpu", 2048, 1024, count=1)),
    "matmul, 512": (150, kernels.matmul, lambda: tensors("cpu", 512, 512)),
}


def launcher(name: str, device: str) -> Work:
    """A kernel of ``INTERPRETED`` on tensors of a device."""
    _, kernel, make = INTERPRETED[name]
    given = [t.to(device) for t in make()]
    out = torch.empty_like(given[0])
    return lambda: kernel(*given, out)


def by_interpreter(name: str) -> Work:
    """The kernel on CPU tensors in a process with TRITON_INTERPRET=1, which runs it for each line that it is sent."""
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.triton", "--serve", name],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(child.kill)

    def work() -> None:
        print("run", file=child.stdin, flush=True)
        if child.stdout is None or child.stdout.readline() != "done\n":
            raise RuntimeError(f"the interpreter of {name!r} ended with {child.wait()}")

    return work


def serve(name: str) -> None:
    """The loop of that process."""
    work = launcher(name, "cpu")
    for _ in sys.stdin:
        work()
        print("done", flush=True)


def rows(count: int, width: int):
    return lambda: tensors("cpu", count, width, count=1)


def flat(size: int, count: int):
    return lambda: tensors("cpu", size, count=count)


def normed():
    return [*tensors("cpu", 2048, 1024, count=1), *tensors("cpu", 1024)]


def product(n: int, dtype: torch.dtype = torch.float32):
    return lambda: [t.to(dtype) for t in tensors("cpu", n, n)]


def heads(S: int, H: int):
    return lambda: tensors("cpu", 1, H, S, 64, count=3)


def gelu(x, out):
    # gelu has no out= in Python; the operator has.
    return F.gelu(x) if out is None else torch.ops.aten.gelu.out(x, out=out)


def sdpa(q, k, v, out):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


WORKLOADS = [
    against("copy, 1M", 0.95, kernels.copy, lambda x, out: x.clone() if out is None else out.copy_(x), flat(1 << 20, 1), 20),
    against("add, 1M", 0.95, kernels.add, lambda x, y, out: torch.add(x, y, out=out), flat(1 << 20, 2), 20),
    against("softmax, 2048x1024", 1.05, kernels.softmax, lambda x, out: torch.softmax(x, 1, out=out), rows(2048, 1024), 5),
    against("layer norm, 2048x1024", 1.0, kernels.layer_norm, lambda x, w, b, out: F.layer_norm(x, (1024,), w, b), normed, 5),
    against("gelu, 16K", 1.1, kernels.gelu, gelu, flat(1 << 14, 1), 100),
    against("gelu, 1M", 0.6, kernels.gelu, gelu, flat(1 << 20, 1), 10),
    against("matmul, 512", 0.75, kernels.matmul, lambda a, b, out: torch.mm(a, b, out=out), product(512), 5, 1e-3),
    against("matmul, 1024", 0.65, kernels.matmul, lambda a, b, out: torch.mm(a, b, out=out), product(1024), 1, 1e-3),
    against(
        "matmul bfloat16, 512", 1.2, kernels.matmul, lambda a, b, out: torch.mm(a, b, out=out), product(512, torch.bfloat16), 5, 1.0
    ),
    against("attention, 8 heads of 1024", 1.1, kernels.attention, sdpa, heads(1024, 8), 2, 1e-4),
    against("attention, 2 heads of 4096", 0.9, kernels.attention, sdpa, heads(4096, 2), 1, 1e-4),
    *(
        Workload(
            f"{name}, against TRITON_INTERPRET", lambda name=name: by_interpreter(name), lambda name=name: launcher(name, "accel"),
            1, figure="speed", target=Target(must, least=True),
        )
        for name, (must, _, _) in INTERPRETED.items()
    ),
]  # fmt: skip

if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
    else:
        page = "--page" in sys.argv
        argv = [word for word in sys.argv[1:] if word != "--page"]
        done = main(__doc__, WORKLOADS, base="torch on the CPU", other="Triton on accel", argv=argv)
        if page:
            triton_page.write(done, [workload.name for workload in WORKLOADS])
