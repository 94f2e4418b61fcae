"""Runs the conformance suite in several processes, with progress, figures and a verdict.

::

    python -m torch_accel.conformance                          # everything
    python -m torch_accel.conformance --sample 10 -k backward  # a tenth of the tests of gradients

A process that crashes names the test it died in and is started again behind it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import ENVIRONMENT

SUITE = Path(__file__).resolve().parent


@dataclass
class Shard:
    """One part of the suite, and the process that runs it now."""

    index: int
    command: list[str]
    log: Path
    environment: dict[str, str]
    process: subprocess.Popen[bytes] | None = None
    total: int = 0
    starts: int = 0
    problem: str = ""
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    running: str | None = None

    def start(self) -> None:
        """Starts a process for what has not run yet."""
        self.log.touch()
        self.starts += 1
        output = open(self.log.with_suffix(".out"), "ab")  # noqa: SIM115
        command = [*self.command, "--accel-log", str(self.log)]
        self.process = subprocess.Popen(command, stdout=output, stderr=output, env=self.environment)

    def read(self) -> None:
        """Takes in the log."""
        self.running = None
        for text in self.log.read_text().splitlines():
            try:
                line = json.loads(text)
            except json.JSONDecodeError:
                continue  # the line that is being written
            self.total = line.get("total", self.total)
            self.running = line.get("start")
            if "end" in line:
                self.results[line["end"]] = line

    def poll(self) -> bool:
        """True once the shard is through. A crash becomes a result, and the shard goes on."""
        assert self.process is not None
        code = self.process.poll()
        self.read()
        if code is None:
            return False
        if self.running is None:
            if code not in (0, 1, 5) or self.total == 0:
                tail = self.log.with_suffix(".out").read_text(errors="replace")[-3000:]
                self.problem = f"shard {self.index} ended with exit code {code} outside any test:\n{tail}"
            return True
        cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        crash = {"end": self.running, "outcome": "crashed", "text": f"crashed the process: {cause}"}
        with self.log.open("a") as file:
            file.write(json.dumps(crash) + "\n")
        self.start()
        return False


def _table(results: list[dict[str, Any]]) -> str:
    rows: dict[str, list[int]] = defaultdict(lambda: [0] * 6)
    for result in results:
        row = rows[result.get("kind") or "(crashed or skipped)"]
        row[0] += 1
        row[1] += result["outcome"] == "passed"
        row[2] += result["outcome"] == "xfailed"
        for index, key in enumerate(("samples", "right", "exact"), start=3):
            row[index] += result.get(key, 0)
    lines = [f"{'kind':<24}{'tests':>8}{'passed':>8}{'known':>7}{'samples':>9}{'right':>9}{'bit-equal':>11}"]
    lines.append("-" * len(lines[0]))
    for kind, (tests, passed, known, samples, right, exact) in sorted(rows.items()):
        lines.append(f"{kind:<24}{tests:>8}{passed:>8}{known:>7}{samples:>9}{right:>9}{exact:>11}")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """The program; returns 1 if a test failed or crashed."""
    parser = argparse.ArgumentParser(prog="python -m torch_accel.conformance", description=__doc__.split("\n")[0])
    parser.add_argument("--sample", type=float, default=100.0, help="percent of the tests, chosen by hash")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("-k", dest="expression", help="pytest's -k")
    parser.add_argument("--json", help="write every result to this file")
    parser.add_argument("--interval", type=float, default=15.0, help="seconds between lines of progress")
    options = parser.parse_args(argv)
    # Two processes, one thread each: a team of threads in each would only share the same cores.
    environment = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", **os.environ}
    environment.update(ENVIRONMENT)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        shards = []
        for index in range(options.processes):
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
            command += ["-p", "torch_accel.conformance.plugin", "--import-mode=importlib", "--no-header", "--tb=short"]
            command += ["--accel-sample", str(options.sample), "--accel-shard", f"{index}/{options.processes}"]
            command += ["-k", options.expression] if options.expression else []
            shards.append(Shard(index, [*command, str(SUITE)], Path(folder) / f"{index}.jsonl", environment))
            shards[-1].start()
        said = started
        while not all([shard.poll() for shard in shards]):
            time.sleep(0.5)
            if time.monotonic() - said >= options.interval:
                said = time.monotonic()
                done = [f"{len(shard.results)}/{shard.total}" for shard in shards]
                print(f"[{said - started:5.0f} s] {' '.join(done)}", flush=True)
        results = [result for shard in shards for result in shard.results.values()]
        problems = [shard.problem for shard in shards if shard.problem]
    # What torch's own decorators skip on every device but one is no difference; each says why in its text.
    failed = sorted(
        (r for r in results if r["outcome"] not in ("passed", "xfailed", "skipped")), key=lambda r: str(r["end"])
    )
    for result in failed:
        lines = result.get("failures") or result["text"].splitlines()[-3:]
        print(f"{result['outcome'].upper()} {result['end']}", *(f"    {line}" for line in lines[:4]), sep="\n")
    print(_table(results))
    print(f"{len(results)} tests, {len(failed)} failed, {time.monotonic() - started:.0f} s")
    print(*problems, sep="\n", end="\n" if problems else "")
    if options.json:
        Path(options.json).write_text(json.dumps(results))
    return 1 if failed or problems or not results else 0


if __name__ == "__main__":
    sys.exit(main())
