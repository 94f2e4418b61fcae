"""What the host pays: a launch, a wait, a replay, an allocation, an import, memory. Against CPU tensors where they have it.

    python -m benchmarks.host

harness.py says what is printed.
"""

import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks import graphs
from benchmarks.harness import Target, Work, Workload, host_seconds, main, tensors
from benchmarks.native import library

F = torch.nn.functional
SMALL = (8, 8)
QUEUED = 300  # launches of a round that a stream's queue holds
MANY = 100_000
TRIPS = 50


def on(function: Callable[..., object], *shapes: tuple[int, ...]) -> Callable[[str], Work]:
    """The function's call on tensors of these shapes."""

    def make(device: str) -> Work:
        operands = [tensors(device, *shape, count=1)[0] for shape in shapes]
        return lambda: function(*operands)

    return make


def repeated(work: Work, times: int) -> Work:
    """The work so many times, in a loop that costs little."""

    def loop() -> None:
        for _ in range(times):
            work()

    return loop


def enqueue(name: str, make: Callable[[str], Work], target: Target | None = None) -> Workload:
    """The CPU's whole call against accel's until it returns."""
    return Workload.on_devices(f"enqueue, {name}", make, QUEUED, clock=host_seconds, target=target)


def add(device: str) -> Work:
    x, y = tensors(device, *SMALL)
    return lambda: x + y


def fallen_back() -> Work:
    """Adds on accel by at::native::cpu_fallback."""
    work = repeated(add("accel"), MANY // 5)

    def call() -> None:
        library().use_cpu_fallback(1)
        try:
            work()
        finally:
            library().use_cpu_fallback(0)

    return call


def add_and_wait() -> Work:
    x, y = tensors("accel", *SMALL)

    def work() -> None:
        for _ in range(TRIPS):
            x.add_(y)
            torch.accelerator.synchronize()

    return work


def empty(device: str, *shape: int) -> Work:
    strides = torch.empty(shape, device="meta").stride()
    return lambda: torch.empty_strided(shape, strides, device=device)


def mixed_sizes(device: str) -> Work:
    """Tensors of many sizes, alive together, freed in another order than made."""
    sizes = [1 << (i * 7 % 20) for i in range(64)]

    def work() -> None:
        alive = [torch.empty(size, dtype=torch.uint8, device=device) for size in sizes]
        del alive[::2]
        del alive[::-1]

    return work


def event_and_wait() -> Work:
    """Another stream waits for this one."""
    other, event = torch.accel.Stream(), torch.accel.Event()

    def work() -> None:
        event.record()
        other.wait_event(event)

    return work


def switch_streams() -> Work:
    stream = torch.accel.Stream()

    def work() -> None:
        with torch.accel.stream(stream):
            pass

    return work


def add_in_place() -> Work:
    x, y = tensors("accel", *SMALL)
    return lambda: x.add_(y)


def importing(module: str) -> Work:
    """A process that imports torch, then the module; the seconds of the latter."""
    code = f"import torch, time; start = time.perf_counter(); import {module}; print(time.perf_counter() - start)"
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}

    def work() -> float:
        child = subprocess.run([sys.executable, "-c", code], check=True, env=environment, stdout=subprocess.PIPE)
        return float(child.stdout)

    return work


def told_seconds(work: Work, calls: int) -> float:
    """Per call, as the work itself says."""
    return sum(float(work()) for _ in range(calls)) / calls


def wall_seconds(work: Work, calls: int) -> float:
    """Per call, with no device involved."""
    start = time.perf_counter()
    for _ in range(calls):
        work()
    return (time.perf_counter() - start) / calls


KEPT: list[object] = []


def resident_bytes(work: Work, calls: int) -> float:
    """By which the process grows for each result. All are kept: what is freed would serve the next round."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    before = resident()
    KEPT.extend([work() for _ in range(calls)])
    torch.accelerator.synchronize()
    return max(resident() - before, 1) / calls


def busy_stream() -> Work:
    """A new stream that has run something."""

    def work() -> torch.Stream:
        stream = torch.accel.Stream()
        with torch.accel.stream(stream):
            torch.zeros(1, device="accel")
        stream.synchronize()
        return stream

    return work


def fresh_pages() -> mmap.mmap:
    """64 KiB that no one had before."""
    pages = mmap.mmap(-1, 1 << 16)
    pages.write(bytes(1 << 16))
    return pages


WORKLOADS = [
    enqueue("add, 8x8", on(torch.add, SMALL, SMALL), Target(1.0)),
    enqueue("add_, 8x8", on(torch.Tensor.add_, SMALL, SMALL)),
    enqueue("mm, 8x8", on(torch.mm, SMALL, SMALL)),
    enqueue("linear with bias, 8x8", on(F.linear, SMALL, SMALL, (8,))),
    enqueue("sum of rows, 8x8", on(lambda x: x.sum(1), SMALL)),
    enqueue("softmax, 8x8", on(lambda x: x.softmax(1), SMALL)),
    enqueue("layer_norm, 8x8", on(lambda x: F.layer_norm(x, (8,)), SMALL)),
    Workload.on_devices(
        "throughput, 100k adds, 8x8", lambda d: repeated(add(d), MANY), 1, per=MANY, target=Target(1.3)
    ),
    Workload(
        "throughput, times faster than cpu_fallback",
        fallen_back,
        lambda: repeated(add("accel"), MANY // 5),
        1,
        per=MANY // 5,
        figure="speed",
        target=Target(4, least=True),
    ),
    Workload(
        "add_ + synchronise, against a futex round trip",
        lambda: lambda: library().futex_round_trips(TRIPS),
        add_and_wait,
        5,
        per=TRIPS,
        target=Target(2),
    ),
    Workload(
        "replay of 20 add_, against eager enqueue",
        lambda: graphs.adds(20),
        lambda: graphs.replayed(lambda: graphs.adds(20)),
        10,
        per=20,
        clock=host_seconds,
        target=Target(0.2),
    ),
    *(
        Workload.on_devices(
            f"empty_strided, {title}", lambda d, s=shape: empty(d, *s), 2000, clock=wall_seconds, target=Target(0.5)
        )
        for title, shape in {"8x8": (8, 8), "64 MiB": (4096, 4096)}.items()
    ),
    Workload(
        "empty_strided, 8x8, on meta, where nothing is allocated",
        lambda: empty("cpu", *SMALL),
        lambda: empty("meta", *SMALL),
        2000,
        clock=wall_seconds,
    ),
    Workload.on_devices("allocate and free, 64 sizes", mixed_sizes, 20, clock=wall_seconds),
    Workload("event record + wait, against add_", add_in_place, event_and_wait, QUEUED // 3, clock=host_seconds),
    Workload("switch of streams, against add_", add_in_place, switch_streams, QUEUED, clock=host_seconds),
    Workload(
        "import of torch_accel, after torch's",
        lambda: importing("sys"),  # nothing
        lambda: importing("torch_accel"),
        1,
        clock=told_seconds,
        figure="added",
        target=Target(100),
    ),
    Workload.on_devices(
        "host memory of a tensor, 8x8",
        lambda d: lambda: torch.empty(SMALL, device=d),
        5000,
        clock=resident_bytes,
        unit="bytes",
    ),
    Workload(
        "host memory of a stream, against 64 KiB of fresh pages",
        lambda: fresh_pages,
        busy_stream,
        5,
        clock=resident_bytes,
        rounds=5,  # torch has 32 streams, then the first again
        unit="bytes",
    ),
]

if __name__ == "__main__":
    main(__doc__, WORKLOADS)
