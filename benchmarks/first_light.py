"""What the zero-copy fallback costs: accel against CPU tensors, in one process, interleaved.

    ./dev bench

Prints, per workload, the median of the ratio accel/CPU over the rounds and its quartiles (1.00: as fast as CPU
tensors), with threads, machine and commit. A ratio whose quartiles span 1.00 says nothing.
"""

import argparse
import platform
import statistics
import subprocess
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table

Work = Callable[[], object]


def tensors(device: str, *shape: int, count: int = 2) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=generator).to(device) for _ in range(count)]


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


WORKLOADS: dict[str, tuple[Callable[[str], Work], int]] = {
    # name: (maker, calls per round)
    "add, 8x8": (lambda d: add(d, 8, 8), 1000),
    "add out=, 8x8": (lambda d: add_out(d, 8, 8), 1000),
    "add, 16 MiB": (lambda d: add(d, 2048, 2048), 10),
    "add out=, 16 MiB": (lambda d: add_out(d, 2048, 2048), 10),
    "mm, 512": (lambda d: mm(d, 512), 10),
    "layer_norm, 512x1024": (lambda d: layer_norm(d, 512, 1024), 20),
    "MLP step, AdamW": (training_step, 5),
}


def seconds(work: Work, calls: int, device: str) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        work()
    if device != "cpu":
        torch.accel.synchronize()
    return (time.perf_counter() - start) / calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    table = Table("workload", "CPU, us", "accel, us", "accel/CPU", "quartiles")
    for name, (make, calls) in WORKLOADS.items():
        pair = {device: make(device) for device in ("cpu", "accel")}
        for device, work in pair.items():
            seconds(work, calls, device)  # warm-up: caches, threads, first touch
        times: dict[str, list[float]] = {"cpu": [], "accel": []}
        for _ in range(rounds):
            for device, work in pair.items():
                times[device].append(seconds(work, calls, device))
        ratios = [a / c for a, c in zip(times["accel"], times["cpu"], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        cpu, accel = (statistics.median(times[d]) * 1e6 for d in ("cpu", "accel"))
        table.add_row(name, f"{cpu:.1f}", f"{accel:.1f}", f"{middle:.2f}", f"{low:.2f} to {high:.2f}")
    console = Console()
    console.print(table)
    console.print(
        f"{rounds} rounds, {torch.get_num_threads()} threads, {platform.processor() or platform.machine()}, commit {commit}"
    )


if __name__ == "__main__":
    main()
