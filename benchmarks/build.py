"""How long a clean build of the extension takes, and which files take it.

    python -m benchmarks.build

Compiles what git tracks, in a folder of its own, with ``MAX_JOBS`` compilers at once (2 unless set).
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.harness import conditions, terminal

ROOT = Path(__file__).resolve().parents[1]
SHOWN = 8


def slowest(log: str) -> list[tuple[str, float]]:
    """Object files of a ninja log (version 5 and later) with the seconds that each took, the slowest first."""
    entries = [line.split("\t") for line in log.splitlines() if not line.startswith("#")]
    took = {Path(name).stem: (int(end) - int(start)) / 1e3 for start, end, _, name, _ in entries}
    return sorted(took.items(), key=lambda entry: -entry[1])


def children_seconds() -> float:
    """The CPU time of this process' children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def record() -> dict[str, Any]:
    """Builds, and says what it took.

    Raises:
        subprocess.CalledProcessError: the build failed.
    """
    environment = {"MAX_JOBS": "2", **os.environ}
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "-C", ROOT, "archive", "HEAD"], check=True, stdout=subprocess.PIPE).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        before, start = children_seconds(), time.perf_counter()
        command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        subprocess.run(command, check=True, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
        wall, cpu = time.perf_counter() - start, children_seconds() - before
        (log,) = Path(folder, "build").glob("temp.*/.ninja_log")
        (library,) = Path(folder, "torch_accel").glob("_C.*.so")
        files = slowest(log.read_text())
        return {
            "script": "build",
            "seconds": round(wall, 1),
            "cpu_seconds": round(cpu, 1),
            "jobs": int(environment["MAX_JOBS"]),
            "files": len(files),
            "library_bytes": library.stat().st_size,
            "slowest": files[:SHOWN],
            **conditions(1),
        }


def main() -> None:
    """The program."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    made = record()
    table = Table("file", "seconds")
    for name, seconds in made["slowest"]:
        table.add_row(name, f"{seconds:.1f}")
    console = terminal()
    console.print(table)
    console.print(
        f"{made['seconds']} s ({made['cpu_seconds']} s of CPU time) for {made['files']} files with {made['jobs']} jobs; "
        f"{made['library_bytes']:,} bytes; {made['machine']}, load {made['load']}, commit {made['commit']}"
    )


if __name__ == "__main__":
    main()
