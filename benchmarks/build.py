"""How long the extension takes to compile, file by file: by ninja's log of the last time that each was.

    python -m benchmarks.build

A clean build with two jobs on two cores takes half of the sum. Whatever else ran then is in the figures.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.harness import conditions, terminal

ROOT = Path(__file__).resolve().parents[1]
SHOWN = 8


def slowest(log: str) -> list[tuple[str, float]]:
    """Object files of a ninja log (version 5 and later) with the seconds that each took, the slowest first."""
    entries = [line.split("\t") for line in log.splitlines() if not line.startswith("#")]
    took = {
        "/".join(Path(name).with_suffix("").parts[-2:]): (int(end) - int(start)) / 1e3
        for start, end, _, name, _ in entries
    }
    return sorted(took.items(), key=lambda entry: -entry[1])


def record() -> dict[str, Any]:
    """What the log says.

    Raises:
        FileNotFoundError: nothing has been built here.
    """
    logs = sorted(ROOT.glob("build/temp.*/.ninja_log"))
    if not logs:
        raise FileNotFoundError(f"{ROOT / 'build'} has no log of ninja's; build first, with ./dev build")
    files = slowest(logs[0].read_text())
    (library,) = (ROOT / "torch_accel").glob("_C.*.so")
    return {
        "script": "build",
        "seconds": round(sum(seconds for _, seconds in files), 1),
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
    console.print(f"{made['seconds']} s for {made['files']} files; {made['library_bytes']:,} bytes; {made['machine']}")


if __name__ == "__main__":
    main()
