"""What the benchmarks share: rounds of A and B in turn in one process, ratios with quartiles, and where they were taken.

A script of this folder describes its workloads and calls ``main``. It prints, per workload, the median of the ratio
accel/CPU over the rounds and its quartiles (1.00: as fast as CPU tensors), with threads, machine and commit. A ratio
whose quartiles span 1.00 says nothing.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from torch_accel.testing import hold_stream

Work = Callable[[], object]
Clock = Callable[[Work, int], float]  # seconds per call


@dataclass(frozen=True)
class Workload:
    """Two ways to do the same work, of which ``base`` is the measure."""

    name: str
    base: Callable[[], Work]
    other: Callable[[], Work]
    calls: int  # a round

    @staticmethod
    def on_devices(name: str, make: Callable[[str], Work], calls: int) -> Workload:
        """The work on the CPU against the same work on accel."""
        return Workload(name, lambda: make("cpu"), lambda: make("accel"), calls)


@dataclass(frozen=True)
class Measured:
    """Medians in microseconds, and the quartiles of the ratio other/base of the rounds."""

    name: str
    base_us: float
    other_us: float
    low: float
    ratio: float
    high: float


def tensors(device: str, *shape: int, count: int = 2) -> list[torch.Tensor]:
    """Normal numbers, the same on every device."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=generator).to(device) for _ in range(count)]


def seconds(work: Work, calls: int) -> float:
    """Per call, until the device has done the work."""
    torch.accelerator.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        work()
    torch.accelerator.synchronize()
    return (time.perf_counter() - start) / calls


def host_seconds(work: Work, calls: int) -> float:
    """Per call, of the host alone: the device begins when all is enqueued, so a round must fit into the stream's queue."""
    torch.accelerator.synchronize()
    with hold_stream():
        start = time.perf_counter()
        for _ in range(calls):
            work()
        passed = time.perf_counter() - start
    torch.accelerator.synchronize()
    return passed / calls


def measure(workload: Workload, rounds: int, clock: Clock = seconds) -> Measured:
    """Times both ways in turn, after a round of each that warms caches, threads and fresh memory."""
    works = (workload.base(), workload.other())
    for work in works:
        clock(work, workload.calls)
    pairs = [tuple(clock(work, workload.calls) for work in works) for _ in range(rounds)]
    low, middle, high = statistics.quantiles([other / base for base, other in pairs], n=4)
    base, other = (statistics.median(times) * 1e6 for times in zip(*pairs, strict=True))
    return Measured(workload.name, base, other, low, middle, high)


def processor() -> str:
    """The model of the CPU, as the kernel names it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def conditions(rounds: int) -> dict[str, Any]:
    """What a figure means nothing without."""
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    return {
        "rounds": rounds,
        "threads": torch.get_num_threads(),
        "machine": processor(),
        "torch": torch.__version__,
        "commit": commit,
    }


def main(
    doc: str,
    workloads: Iterable[Workload],
    *,
    rounds: int = 15,
    base: str = "CPU",
    other: str = "accel",
    clock: Clock = seconds,
    argv: list[str] | None = None,
) -> list[Measured]:
    """The program of a script: options, a table on the terminal, a line of JSON when asked.

    Args:
        doc: the docstring of the script; its first line is the help.
        rounds: how many by default.
        base, other: the titles of the two columns.
        clock: ``seconds`` or ``host_seconds``.
    """
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("-k", dest="words", default="", help="only workloads whose name contains this")
    parser.add_argument("--json", type=Path, help="append conditions and figures to this file, as one line of JSON")
    options = parser.parse_args(argv)
    chosen = [workload for workload in workloads if options.words in workload.name]
    done = [measure(workload, options.rounds, clock) for workload in chosen]
    table = Table("workload", f"{base}, us", f"{other}, us", f"{other}/{base}", "quartiles")
    for m in done:
        table.add_row(m.name, f"{m.base_us:.1f}", f"{m.other_us:.1f}", f"{m.ratio:.2f}", f"{m.low:.2f} to {m.high:.2f}")
    facts = conditions(options.rounds)
    console = Console()
    console.print(table)
    console.print(
        f"{facts['rounds']} rounds, {facts['threads']} threads, {facts['machine']}, "
        f"torch {facts['torch']}, commit {facts['commit']}"
    )
    if options.json:
        record = {"script": Path(sys.argv[0]).stem, "base": base, "other": other, **facts}
        with options.json.open("a") as file:
            file.write(json.dumps({**record, "workloads": [asdict(m) for m in done]}) + "\n")
    return done
