"""What the device computes and copies: big tensors, training sizes, whole steps, copies.

    python -m benchmarks.device

harness.py says what is printed.
"""

import ctypes

import torch

from benchmarks import graphs
from benchmarks.harness import Target, Work, Workload, main, tensors
from benchmarks.models import gpt_step, lstm_step, resnet_step

F = torch.nn.functional
MEGABYTE = 1 << 18  # floats
COPIED = 16 * MEGABYTE
SAME = Target(1.02)


def add_out(device: str, count: int) -> Work:
    x, y, z = tensors(device, count, count=3)
    return lambda: torch.add(x, y, out=z)


def add_fresh(device: str, count: int) -> Work:
    x, y = tensors(device, count)
    return lambda: x + y


def mm(device: str, n: int) -> Work:
    x, y, z = tensors(device, n, n, count=3)
    return lambda: torch.mm(x, y, out=z)


def trained(function, *shapes: tuple[int, ...]):
    """Forward and backward of a function of these tensors."""

    def make(device: str) -> Work:
        leaves = [t.requires_grad_() for shape in shapes for t in tensors(device, *shape, count=1)]
        grad = torch.ones_like(function(*leaves))
        return lambda: torch.autograd.grad(function(*leaves), leaves, grad)

    return make


TRAINED = {
    "conv2d, 16x32x56x56, 3x3": (lambda x, w: F.conv2d(x, w, padding=1), (16, 32, 56, 56), (32, 32, 3, 3)),
    "layer_norm, 2048x1024": (lambda x, w, b: F.layer_norm(x, (1024,), w, b), (2048, 1024), (1024,), (1024,)),
    "softmax, 2048x1024": (lambda x: x.softmax(1), (2048, 1024)),
}


def memcpy() -> Work:
    """Of the host's own memory, as much as the copies."""
    source, destination = torch.ones(COPIED), torch.empty(COPIED)
    return lambda: ctypes.memmove(destination.data_ptr(), source.data_ptr(), 4 * COPIED)


def copy(to_device: bool) -> Work:
    """From or to pinned memory."""
    host, there = torch.ones(COPIED).pin_memory(), torch.empty(COPIED, device="accel")
    source, destination = (host, there) if to_device else (there, host)
    return lambda: destination.copy_(source, non_blocking=True)


WORKLOADS = [
    *(
        Workload.on_devices(f"add out=, {size} MiB", lambda d, n=size * MEGABYTE: add_out(d, n), calls, target=SAME)
        for size, calls in {1: 200, 16: 20, 64: 5}.items()
    ),
    *(
        Workload.on_devices(f"add, {size} MiB", lambda d, n=size * MEGABYTE: add_fresh(d, n), calls, target=target)
        for size, calls, target in ((1, 200, Target(0.6)), (16, 20, Target(0.6)), (64, 5, Target(0.6)))
    ),
    Workload.on_devices("mm out=, 1024", lambda d: mm(d, 1024), 5, target=SAME),
    *(
        Workload.on_devices(f"{name}, forward and backward", trained(function, *shapes), 3, target=SAME)
        for name, (function, *shapes) in TRAINED.items()
    ),
    Workload.on_devices("GPT small step", lambda d: gpt_step(d, "small"), 1, target=Target(0.95)),
    Workload.on_devices("GPT tiny step", lambda d: gpt_step(d, "tiny"), 20, target=Target(1.15)),
    Workload.on_devices("GPT small step, bfloat16 autocast", lambda d: gpt_step(d, "small", autocast=True), 1),
    Workload.on_devices("ResNet-18 step", resnet_step, 1),
    Workload.on_devices("LSTM step", lstm_step, 2),
    Workload(
        "MLP step, a replay of its graph against eager",
        graphs.training_step,
        lambda: graphs.replayed(graphs.training_step),
        20,
    ),
    *(
        Workload(
            f"{name} of 64 MiB pinned, speed of memcpy", memcpy, lambda d=d: copy(d), 3, figure="speed", target=target
        )
        for name, d, target in (("H2D", True, Target(0.9, least=True)), ("D2H", False, Target(0.9, least=True)))
    ),
]

if __name__ == "__main__":
    main(__doc__, WORKLOADS)
