"""The measured table of docs/triton.md, made of docs/triton.json.

    python -m benchmarks.triton --page      # measures, writes the JSON and then the table
    python -m benchmarks.triton_page        # the table alone

The JSON is a run of benchmarks.triton as harness.py describes one: conditions and figures.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.harness import Measured, conditions
from benchmarks.page import table

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "docs/triton.json"
PAGE = ROOT / "docs/triton.md"
BEGIN = "<!-- measured by python -m benchmarks.triton --page; do not edit -->\n"
END = "<!-- measured: end -->\n"
COLUMNS = ("work", "other, ms", "accel, ms", "accel is faster by", "95 % interval", "target", "")


def text(run: dict[str, Any]) -> str:
    """The table of a run, and where it was taken."""
    rows = [
        (
            m["name"],
            f"{m['base'] / 1e3:,.3f}",
            f"{m['other'] / 1e3:,.3f}",
            f"{m['ratio']:.2f}",
            f"{m['interval'][0]:.2f} to {m['interval'][1]:.2f}",
            m["target"],
            m["verdict"],
        )
        for m in run["workloads"]
    ]
    where = (
        f"{run['machine']}, {run['cores']} cores, {run['threads']} threads, torch {run['torch']}, commit {run['commit']}, "
        f"load {run['load']} (a benchmark alone is {run['threads']}), {run['rounds']} rounds.\n"
    )
    return f"{table(COLUMNS, rows)}\n{where}"


def put(page: str, made: str) -> str:
    """A page with the table between its markers. Raises ValueError where it has no markers."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no lines {BEGIN.strip()!r} and {END.strip()!r}")
    return before + begin + made + end + after


def write(done: list[Measured], names: list[str]) -> None:
    """JSON and table of what has been measured. Raises ValueError if a workload of ``names`` is missing: the table would lose it."""
    missing = sorted(set(names) - {m.name for m in done})
    if missing:
        raise ValueError(f"--page needs all workloads, and these were not measured: {', '.join(missing)}; leave out -k")
    run = {"script": "triton", **conditions(max(m.rounds for m in done)), "workloads": [asdict(m) for m in done]}
    DATA.write_text(json.dumps(run, indent=1) + "\n")
    render()


def render() -> None:
    """The table, of the JSON."""
    PAGE.write_text(put(PAGE.read_text(), text(json.loads(DATA.read_text()))))


if __name__ == "__main__":
    render()
