"""What the benchmarks share: rounds of A and B in turn in one process, ratios with their interval, and where they were taken.

A script of this folder describes its workloads and calls ``main``. It prints, per workload, the median over the rounds
of the ratio accel/CPU (1.00: as fast as CPU tensors), the quartiles, and the 95 % bootstrap interval of that median,
with threads, machine, load and commit. An interval that spans 1.00 says nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from torch_accel.testing import hold_stream

Work = Callable[[], object]
Clock = Callable[[Work, int], float]  # the cost of a call: seconds, or what the workload's unit says

MIN_ROUNDS = 5


@dataclass(frozen=True)
class Target:
    """What a figure is measured against: at most, or at least, ``limit``."""

    limit: float
    least: bool = False

    def __str__(self) -> str:
        return f"{'>=' if self.least else '<='} {self.limit:g}"

    def verdict(self, low: float, value: float, high: float) -> str:
        """``met`` or ``missed``; ``open`` where the interval holds both."""
        met = [(v >= self.limit) if self.least else (v <= self.limit) for v in (low, value, high)]
        return (
            "met" if all(met) else "missed" if not any(met) else f"open, {'met' if met[1] else 'missed'} at the median"
        )


@dataclass(frozen=True)
class Workload:
    """Two ways to do the same work, of which ``base`` is the measure."""

    name: str
    base: Callable[[], Work]
    other: Callable[[], Work]
    calls: int  # a round
    clock: Clock | None = None  # else the script's
    per: int = 1  # a call does the work this many times
    rounds: int | None = None  # else the script's
    #: ``ratio`` other/base, ``speed`` base/other, ``added`` other - base, in milliseconds
    figure: str = "ratio"
    unit: str = "us"  # of base and other: us, or bytes
    target: Target | None = None

    @staticmethod
    def on_devices(name: str, make: Callable[[str], Work], calls: int, **options: Any) -> Workload:
        """The work on the CPU against the same work on accel."""
        return Workload(name, lambda: make("cpu"), lambda: make("accel"), calls, **options)


@dataclass(frozen=True)
class Measured:
    """Medians of the two ways in the workload's unit, and the figure: quartiles and interval over the rounds."""

    name: str
    base: float
    other: float
    low: float
    ratio: float
    high: float
    interval: tuple[float, float]
    rounds: int
    figure: str = "ratio"
    unit: str = "us"
    target: str = ""
    verdict: str = ""


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


def bootstrap(values: list[float], resamples: int = 2000, seed: int = 0) -> tuple[float, float]:
    """The 95 % interval of the median of ``values``, by resampling."""
    draws = np.random.default_rng(seed).choice(np.asarray(values), (resamples, len(values)))
    low, high = np.quantile(np.median(draws, axis=1), [0.025, 0.975])
    return float(low), float(high)


FIGURES: dict[str, Callable[[float, float], float]] = {
    "ratio": lambda base, other: other / base,
    "speed": lambda base, other: base / other,
    "added": lambda base, other: (other - base) * 1e3,
}


def measure(workload: Workload, rounds: int, clock: Clock = seconds, limit: float = float("inf")) -> Measured:
    """Times both ways in turn, after a round of each that warms caches, threads and fresh memory.

    Args:
        rounds: how many.
        limit: seconds after which no further round begins, once there are five.
    """
    clock, rounds = workload.clock or clock, workload.rounds or rounds
    works = (workload.base(), workload.other())
    for work in works:
        clock(work, workload.calls)
    pairs: list[tuple[float, float]] = []
    start = time.perf_counter()
    while len(pairs) < rounds and (len(pairs) < MIN_ROUNDS or time.perf_counter() - start < limit):
        # Either goes first in turn: what one leaves behind (caches, heat) falls on both.
        order = (0, 1) if len(pairs) % 2 == 0 else (1, 0)
        times = {i: clock(works[i], workload.calls) / workload.per for i in order}
        pairs.append((times[0], times[1]))
    figures = [FIGURES[workload.figure](base, other) for base, other in pairs]
    low, middle, high = statistics.quantiles(figures, n=4) if len(figures) > 1 else figures * 3
    interval = bootstrap(figures)
    scale = 1e6 if workload.unit == "us" else 1
    base, other = (statistics.median(times) * scale for times in zip(*pairs, strict=True))
    target = workload.target
    return Measured(
        workload.name,
        base,
        other,
        low,
        middle,
        high,
        interval,
        len(pairs),
        workload.figure,
        workload.unit,
        str(target or ""),
        target.verdict(interval[0], middle, interval[1]) if target else "",
    )


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
        "cores": len(os.sched_getaffinity(0)),
        "machine": processor(),
        "load": round(os.getloadavg()[0], 1),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY", "default"),
        "torch": torch.__version__,
        "commit": commit,
    }


def described(facts: dict[str, Any]) -> str:
    """The conditions in a line."""
    return (
        f"{facts['rounds']} rounds, {facts['threads']} threads on {facts['cores']} cores, {facts['machine']}, "
        f"load {facts['load']}, OMP_WAIT_POLICY {facts['omp_wait_policy']}, torch {facts['torch']}, "
        f"commit {facts['commit']}"
    )


def shown(m: Measured, value: float) -> str:
    """A value of the figure."""
    return f"{value:+.0f} ms" if m.figure == "added" else f"{value:.2f}"


def terminal() -> Console:
    """Where tables go: a file gets them in one width, whatever the window."""
    return Console(width=None if sys.stdout.isatty() else 140)


def compared(done: list[Measured], base: Path, script: str, policy: str) -> Table:
    """The figures beside those of an earlier run: ``better`` or ``worse`` where the intervals do not meet.

    Raises:
        ValueError: the file has no run of this script under this OMP_WAIT_POLICY.
    """
    runs = [json.loads(line) for line in base.read_text().splitlines() if line]
    runs = [r for r in runs if r["script"] == script and r["omp_wait_policy"] == policy]
    if not runs:
        raise ValueError(f"{base} has no run of {script} with OMP_WAIT_POLICY {policy}; make one with --json {base}")
    before = {m["name"]: Measured(**m) for m in runs[-1]["workloads"]}
    table = Table("workload", f"commit {runs[-1]['commit']}", "now", "change")
    for m in done:
        if (was := before.get(m.name)) is None:
            table.add_row(m.name, "", shown(m, m.ratio), "new")
            continue
        apart = m.interval[0] > was.interval[1] or m.interval[1] < was.interval[0]
        more_is_better = m.figure == "speed"
        word = ("better" if (m.ratio > was.ratio) == more_is_better else "worse") if apart else "same"
        table.add_row(m.name, shown(was, was.ratio), shown(m, m.ratio), word)
    return table


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
    parser.add_argument(
        "--limit", type=float, default=float("inf"), help="seconds a workload, after which no further round begins"
    )
    parser.add_argument("-k", dest="words", default="", help="only workloads whose name contains this")
    parser.add_argument("--json", type=Path, help="append conditions and figures to this file, as one line of JSON")
    parser.add_argument("--compare", type=Path, metavar="BASE", help="show the change since the last run in this JSON")
    options = parser.parse_args(argv)
    script = Path(sys.argv[0]).stem
    done = [
        measure(workload, options.rounds, clock, options.limit)
        for workload in workloads
        if options.words in workload.name
    ]
    table = Table("workload", f"{base}, us", f"{other}, us", f"{other}/{base}", "quartiles", "95 % interval", "target")
    for m in done:
        unit = "" if m.unit == "us" else f" {m.unit}"
        table.add_row(
            escape(m.name),  # `[...]` is markup
            f"{m.base:.1f}{unit}",
            f"{m.other:.1f}{unit}",
            shown(m, m.ratio) + (" x faster" if m.figure == "speed" else ""),
            f"{shown(m, m.low)} to {shown(m, m.high)}",
            f"{shown(m, m.interval[0])} to {shown(m, m.interval[1])}",
            f"{m.target} {m.verdict}".strip(),
        )
    facts = conditions(options.rounds)
    console = terminal()
    console.print(table)
    console.print(described(facts))
    if options.compare:
        console.print(compared(done, options.compare, script, facts["omp_wait_policy"]))
    if options.json:
        record = {"script": script, "base": base, "other": other, **facts}
        with options.json.open("a") as file:
            file.write(json.dumps({**record, "workloads": [asdict(m) for m in done]}) + "\n")
    return done
