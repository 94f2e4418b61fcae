"""What the zero-copy fallback costs: accel against CPU tensors, in one process, interleaved.

    ./dev bench

harness.py says what is printed.
"""

import torch

from benchmarks.harness import Work, Workload, main, tensors


def add(device: str, *shape: int) -> Work:
    x, y = tensors(device, *shape)
    return lambda: x + y


def add_out(device: str, *shape: int) -> Work:
    x, y, z = tensors(device, *shape, count=3)
    return lambda: torch.add(x, y, out=z)


def mm(device: str, n: int) -> Work:
    x, y = tensors(device, n, n)
    return lambda: x @ y


def layer_norm(device: str, *shape: int) -> Work:
    (x,) = tensors(device, *shape, count=1)
    return lambda: torch.nn.functional.layer_norm(x, x.shape[-1:])


def training_step(device: str) -> Work:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    (x,) = tensors(device, 128, 256, count=1)
    y = torch.arange(128).remainder(10).to(device)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


WORKLOADS = [
    Workload.on_devices("add, 8x8", lambda d: add(d, 8, 8), 1000),
    Workload.on_devices("add out=, 8x8", lambda d: add_out(d, 8, 8), 1000),
    Workload.on_devices("add, 16 MiB", lambda d: add(d, 2048, 2048), 10),
    Workload.on_devices("add out=, 16 MiB", lambda d: add_out(d, 2048, 2048), 10),
    Workload.on_devices("mm, 512", lambda d: mm(d, 512), 10),
    Workload.on_devices("layer_norm, 512x1024", lambda d: layer_norm(d, 512, 1024), 20),
    Workload.on_devices("MLP step, AdamW", training_step, 5),
]

if __name__ == "__main__":
    main(__doc__, WORKLOADS)
