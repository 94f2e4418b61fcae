"""The table of targets: every suite, under the default OMP_WAIT_POLICY and under PASSIVE, in a quarter of an hour.

    ./dev bench [--page] [--compare BASE.json]

Each suite runs in a process of its own under each policy. ``--page`` also counts the instructions (valgrind must be
installed) and writes docs/performance.json, the page docs/performance.md and its pictures. ``--compare`` shows, suite
by suite, what changed since the run in another file.
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

from rich.table import Table

from benchmarks import page
from benchmarks.harness import terminal

SUITES = tuple(page.TITLES)
POLICIES = ("default", "PASSIVE")


def environment(policy: str) -> dict[str, str]:
    """This process', with that policy of OpenMP."""
    variables = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    return variables if policy == "default" else {**variables, "OMP_WAIT_POLICY": policy}


def run(suites: tuple[str, ...], policies: tuple[str, ...], arguments: list[str]) -> list[dict[str, Any]]:
    """The JSON of each suite under each policy.

    Raises:
        subprocess.CalledProcessError: a suite failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "runs.json")
        for policy in policies:
            for suite in suites:
                command = [sys.executable, "-m", f"benchmarks.{suite}", "--json", str(out), *arguments]
                subprocess.run(command, check=True, env=environment(policy))
        return [json.loads(line) for line in out.read_text().splitlines()]


def targets(runs: list[dict[str, Any]]) -> Table:
    """The rows that have a target."""
    table = Table(*page.TARGET_COLUMNS)
    for row in page.target_rows(runs):
        table.add_row(*row)
    return table


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__.splitlines()[0])
    parser.add_argument("--page", action="store_true", help="write docs/performance.{json,md} and the pictures")
    parser.add_argument("--rounds", default="45", help="of each workload, at most (default: 45)")
    parser.add_argument("--limit", default="10", help="seconds a workload, after which no further round begins")
    parser.add_argument("--compare", type=Path, metavar="BASE", help="show the change since the runs in this JSON")
    options = parser.parse_args()
    arguments = ["--rounds", options.rounds, "--limit", options.limit]
    if options.compare:
        arguments += ["--compare", str(options.compare.resolve())]
    runs = run(SUITES, POLICIES, arguments)
    terminal().print(targets(runs))
    if options.page:
        page.write(runs)


if __name__ == "__main__":
    main()
