"""benchmarks.triton with one thread and with two, side by side: how Triton kernels and torch's operators scale over cores.

    python -m benchmarks.triton_threads [--threads 1,2] [options of benchmarks.triton]

Each count runs in a process of its own, one after the other, as OMP_NUM_THREADS: the threads of torch, and the cores of the
device. Times of the two processes are a run apart: only "x faster", within a process, is measured in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks import harness
from benchmarks.harness import Measured


def run(threads: int, arguments: list[str]) -> dict[str, Any]:
    """The run of benchmarks.triton with so many threads, as harness.py writes it; its own table goes to the terminal.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    environment = {name: value for name, value in os.environ.items() if name != "ACCEL_CORES"}
    environment["OMP_NUM_THREADS"] = str(threads)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "run.json")
        command = [sys.executable, "-m", "benchmarks.triton", "--json", str(out), *arguments]
        subprocess.run(command, check=True, env=environment)
        return dict(json.loads(out.read_text()))


def side_by_side(runs: list[dict[str, Any]]) -> Table:
    """A row per workload: time on accel and figure at each count, and how much faster than at the first count both ways got."""
    table = Table("workload")
    for one in runs:
        table.add_column(f"accel, us, {one['threads']} thr.")
        table.add_column("x torch")
    for one in runs[1:]:
        table.add_column(f"accel, {one['threads']}/{runs[0]['threads']} thr.")
        table.add_column("torch")
    for workloads in zip(*([Measured(**m) for m in one["workloads"]] for one in runs), strict=True):
        first, *others = workloads
        row = [escape(first.name)]
        for m in workloads:
            row += [f"{m.other:.1f}", harness.shown(m, m.ratio)]
        for m in others:
            row += [f"{first.other / m.other:.2f} x", f"{first.base / m.base:.2f} x"]
        table.add_row(*row)
    return table


def main(argv: list[str] | None = None) -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--threads", default="1,2", help="counts, with commas between")
    options, rest = parser.parse_known_args(argv)
    runs = [run(int(count), rest) for count in options.threads.split(",")]
    console = Console()
    console.print(side_by_side(runs))
    for one in runs:
        console.print(harness.described(one))


if __name__ == "__main__":
    main()
