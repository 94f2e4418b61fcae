"""How work scales over streams, devices and host threads: all on one, against the same work shared by two.

    python -m benchmarks.scaling

0.50 is perfect on two idle cores. Each stream's kernels take one core. harness.py says what is printed.
"""

import os
import threading

if __name__ == "__main__":  # torch's import reads them
    os.environ.setdefault("ACCEL_DEVICES", "2")
    os.environ.setdefault("ACCEL_THREADS", "1")

import torch

from benchmarks.device import copy
from benchmarks.harness import Target, Work, Workload, main, tensors

PRODUCTS = 8
ADDS = 2000


def products(streams: list[torch.Stream]) -> Work:
    """Matrix products shared by streams, of one device or of several."""
    operands = [tensors(str(stream.device), 512, 512, count=3) for stream in streams]

    def work() -> None:
        for _ in range(PRODUCTS // len(streams)):
            for stream, (x, y, z) in zip(streams, operands):
                with stream:
                    torch.mm(x, y, out=z)
        for stream in streams:
            stream.synchronize()

    return work


def streams_of(*devices: int) -> list[torch.Stream]:
    """A new stream of each."""
    return [torch.Stream(device=f"accel:{device}") for device in devices]


def adds(threads: int) -> Work:
    """Tiny adds shared by host threads, each on a stream of its own. Python's lock is held for a part of each."""

    def enqueue(count: int) -> None:
        with torch.Stream(device="accel") as stream:
            x, y = tensors("accel", 8, 8)
            for _ in range(count):
                x.add_(y)
        stream.synchronize()

    def work() -> None:
        hosts = [threading.Thread(target=enqueue, args=(ADDS // threads,)) for _ in range(threads)]
        for host in hosts:
            host.start()
        for host in hosts:
            host.join()

    return work


def copy_beside_compute(apart: bool, to_device: bool) -> Work:
    """A copy and products that do not depend on it: on one stream, or on two."""
    x, y, z = tensors("accel", 512, 512, count=3)
    transfer = copy(to_device)
    compute = torch.accel.Stream()
    copies = torch.accel.Stream() if apart else compute

    def work() -> None:
        with torch.accel.stream(compute):
            for _ in range(4):
                torch.mm(x, y, out=z)
        with torch.accel.stream(copies):
            transfer()

    return work


WORKLOADS = [
    Workload("mm, two streams", lambda: products(streams_of(0)), lambda: products(streams_of(0, 0)), 2),
    Workload("mm, two devices", lambda: products(streams_of(0)), lambda: products(streams_of(0, 1)), 2),
    *(
        Workload(
            f"{name} beside mm",
            lambda d=d: copy_beside_compute(False, d),
            lambda d=d: copy_beside_compute(True, d),
            3,
            target=Target(0.95),
        )
        for name, d in (("H2D", True), ("D2H", False))
    ),
    Workload("add_ 8x8, two host threads", lambda: adds(1), lambda: adds(2), 3),
]

if __name__ == "__main__":
    main(__doc__, WORKLOADS, base="one", other="two")
