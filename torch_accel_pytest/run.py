"""A run on accel: what is done around each test, and the summary at the end."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from . import settings as _settings
from . import waits as _waits
from .summary import Figures

_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def memory_of(item: pytest.Item) -> int | None:
    """Bytes of the mark ``accel_memory``, or None."""
    mark = item.get_closest_marker("accel_memory")
    if mark is None:
        return None
    text = str(mark.args[0]) if len(mark.args) == 1 else ""
    match = re.fullmatch(r"(\d+)([KMGT]iB)?", text)
    if match is None:
        raise pytest.UsageError(f"{item.nodeid}: accel_memory takes a size, as in @pytest.mark.accel_memory('64MiB')")
    return int(match[1]) * _UNITS[match[2] or ""]


def without_pytest(text: str) -> str:
    """A report of the sanitizer without pytest's own frames, which are the outer ones of every stack."""
    text = re.sub(r'^ *File "[^"]*[/\\](?:_pytest|pluggy|xdist|execnet)[/\\].*\n.*\n', "", text, flags=re.M)
    return re.sub(r"^ *\(\d+ more\)\n", "", text, flags=re.M)


class Run:
    """Registered as a plugin of its own while a run is on accel."""

    def __init__(
        self,
        config: pytest.Config,
        settings: _settings.Settings,
        as_cuda: bool,
        capability: tuple[int, int] | None,
    ) -> None:
        self.config = config
        self.settings = settings
        self.as_cuda = as_cuda
        self.capability = capability
        self.figures = Figures()
        self._open = contextlib.ExitStack()

    def open(self) -> None:
        """Sets the environment, and from here on "cuda" is accel where that was asked for."""
        before = _settings.apply(self.settings.environment)
        self._open.callback(_settings.restore, before)
        if self.as_cuda:
            import torch_accel

            self._open.enter_context(torch_accel.as_cuda(self.capability))

    def close(self) -> None:
        """Puts everything back."""
        self._open.close()

    def pytest_report_header(self) -> list[str]:
        """The mode, the memory and the seed."""
        lines = list(_settings.lines(self.settings))
        if self.as_cuda:
            lines.append("accel: what says cuda runs on accel")
        if self.settings.seed is not None and getattr(self.config.option, "numprocesses", None):
            lines.append("accel: worker gwN has schedule seed + N")
        return lines

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Runs a test and waits for its work, so that a late error fails the test that made it, and no other."""
        import torch_accel  # registers accel, if `import torch` has not

        allowed = _waits.most(item, self.settings.strict)
        try:
            with self._memory(item), contextlib.ExitStack() as watching:
                # A stack for each wait takes time: only where somebody asks for them.
                seen = [] if allowed is None else watching.enter_context(torch_accel.testing.host_waits())
                result = yield
        except BaseException as error:
            self._settle(torch_accel)  # its late errors must not become those of the next test
            if error.args and str(error).startswith("accel sanitizer: "):
                error.args = (without_pytest(str(error)),)
            raise
        finally:
            self.figures.measure(torch_accel)
        late = self._settle(torch_accel)
        if late:
            pytest.fail(f"work that this test has queued on accel failed later: {late}", pytrace=False)
        if allowed is not None:
            places = _waits.hidden(seen, self.config)
            self.figures.hidden.update({str(place): count for place, count in places.items()})
            if text := _waits.complaint(places, allowed):
                pytest.fail(text, pytrace=False)
        return result

    def _settle(self, torch_accel: Any) -> str:
        """Waits for all devices; the text of an error that has come late, or ''."""
        if not torch_accel.is_initialized():
            return ""
        errors = []
        with self.figures.uncounted():
            for index in range(torch_accel.device_count()):
                try:
                    torch_accel.synchronize(index)
                except Exception as error:
                    errors.append(str(error))
        return "\n".join(errors)

    @contextlib.contextmanager
    def _memory(self, item: pytest.Item) -> Iterator[None]:
        limit = memory_of(item)
        if limit is None:
            yield
            return
        import torch_accel

        torch_accel.empty_cache()
        total = torch_accel.get_device_properties(0).total_memory
        if limit > total:
            raise pytest.UsageError(f"{item.nodeid}: accel_memory of {limit} bytes, but ACCEL_MEMORY is {total}")
        devices = range(torch_accel.device_count())
        before = [torch_accel.get_per_process_memory_fraction(index) for index in devices]
        for index in devices:
            torch_accel.set_per_process_memory_fraction(limit / total, index)
        try:
            yield
        finally:
            for index, fraction in zip(devices, before):
                torch_accel.set_per_process_memory_fraction(fraction, index)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Tells with a failure how its schedule is repeated."""
        with self.figures.uncounted():  # a failure prints tensors
            report = yield
        if report.failed and self.settings.schedule is not None:
            seed = self.settings.schedule
            report.sections.append(("accel", f"schedule seed {seed}: repeat with --accel=strict --accel-seed {seed}"))
        return report

    def pytest_sessionfinish(self) -> None:
        """A worker of pytest-xdist sends its figures to the process that prints."""
        self.figures.finish()
        output = getattr(self.config, "workeroutput", None)
        if output is not None:
            output["accel"] = self.figures.to_dict()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Takes in what a worker has sent; one that crashed has sent nothing."""
        sent = getattr(node, "workeroutput", {}).get("accel")
        if sent:
            self.figures.add(Figures.from_dict(sent))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Peak memory, host waits by caller, hidden waits by line, fallbacks."""
        terminalreporter.section("accel")
        for line in self.figures.lines(self.settings.strict):
            terminalreporter.write_line(line)
        if self.settings.seed is not None:
            terminalreporter.write_line(
                f"schedule seed {self.settings.seed}: repeat with --accel=strict --accel-seed {self.settings.seed}"
            )
