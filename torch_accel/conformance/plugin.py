"""A pytest plugin for running the suite in parts: ``-p torch_accel.conformance.plugin``.

It picks a sample or a shard by a hash of the test's name, which is the same on every machine, and logs a line of JSON
at the start and at the end of every test: after a crash the log tells which test it was, and the next process goes on
behind it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any, TextIO

import pytest

from .compare import Tally
from .judge import collectors


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, for a process of the runner."""
    group = parser.getgroup("accel", "conformance suite of accel")
    group.addoption("--accel-sample", type=float, default=100.0, metavar="PERCENT", help="run this part of the tests")
    group.addoption("--accel-shard", default="0/1", metavar="K/N", help="run the K-th of N parts")
    group.addoption("--accel-log", metavar="FILE", help="append results to FILE; tests that it holds are not run again")


def name_of(item: pytest.Item) -> str:
    """Class and name of a test: what its hash is taken of."""
    return "::".join(item.nodeid.split("::")[1:])


def chosen(name: str, percent: float, shard: int, shards: int) -> bool:
    """Whether a test belongs to a sample and to a shard. A larger sample holds every smaller one."""
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    sample, part = divmod(number, 10_000)[1], number // 10_000
    return sample < percent * 100 and part % shards == shard


class Log:
    """Appends to the log file."""

    def __init__(self, file: TextIO) -> None:
        self.file = file
        self.figures: dict[str, Any] = {}
        self.outcome = "passed"
        self.text = ""

    def write(self, **line: Any) -> None:
        """Writes a line, at once: a crash must not lose it."""
        self.file.write(json.dumps(line) + "\n")
        self.file.flush()

    def collect(self, kind: str, name: str, dtype: str, tally: Tally) -> None:
        """Keeps the figures of the test that runs."""
        self.figures = {
            "kind": kind,
            "op": name,
            "dtype": dtype,
            "samples": tally.samples,
            "right": tally.right,
            "exact": tally.exact,
            "failures": tally.failures,
        }

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Frames a test in two lines."""
        self.write(start=name_of(item))
        self.figures, self.outcome, self.text = {}, "passed", ""
        yield
        self.write(end=name_of(item), outcome=self.outcome, text=self.text, **self.figures)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes the worst outcome of set-up, call and tear-down."""
        outcome = "xfailed" if hasattr(report, "wasxfail") and report.skipped else report.outcome
        if outcome != "passed":
            self.outcome, self.text = outcome, report.longreprtext[-4000:]


def pytest_configure(config: pytest.Config) -> None:
    """Opens the log."""
    path = config.getoption("--accel-log")
    if path:
        log = Log(open(path, "a"))  # noqa: SIM115
        collectors.append(log.collect)
        config.pluginmanager.register(log, "accel-log")


@pytest.hookimpl(trylast=True)  # behind -k
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps the sample, the shard, and what has not run yet."""
    shard, shards = map(int, config.getoption("--accel-shard").split("/"))
    percent = config.getoption("--accel-sample")
    done = set()
    path = config.getoption("--accel-log")
    if path:
        with open(path) as file:
            done = {line.get("end") for line in map(json.loads, file)}
    wanted = [item for item in items if chosen(name_of(item), percent, shard, shards)]
    remaining = [item for item in wanted if name_of(item) not in done]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(remaining)])
    items[:] = remaining
    log = config.pluginmanager.get_plugin("accel-log")
    if isinstance(log, Log):
        log.write(total=len(wanted))
