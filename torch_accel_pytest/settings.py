"""The environment of a run: variables that torch_accel reads at its first use, and those of others' test suites."""

from __future__ import annotations

import importlib.util
import os
import random
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

#: host waits that a line outside the tests may make in one test under --accel=strict
MOST_WAITS = 3

#: of one process: a run with four workers of pytest-xdist needs room for four
MEMORY = "2GiB"

#: how test suites are told the device: Hugging Face's transformers, diffusers and accelerate
OTHERS = {
    "TRANSFORMERS_TEST_DEVICE": "accel",
    "TRANSFORMERS_TEST_BACKEND": "torch_accel",
    "DIFFUSERS_TEST_DEVICE": "accel",
    "DIFFUSERS_TEST_BACKEND": "torch_accel",
    "ACCELERATE_TORCH_DEVICE": "accel",
}

#: what --accel=strict adds, beside the seed
STRICT = {"ACCEL_POISON": "1", "ACCEL_DELAY_US": "200", "ACCEL_SANITIZER": "1"}

#: torch_accel reads these once; a value that is set later has no effect
READ_ONCE = ("ACCEL_MEMORY", "ACCEL_SCHEDULE_SEED", *STRICT)


@dataclass(frozen=True)
class Settings:
    """What a run was asked for; `environment` holds only what the plugin itself sets."""

    mode: str
    #: of --accel=strict: that of the whole run, from which each worker derives its own
    seed: int | None
    environment: dict[str, str]

    @property
    def strict(self) -> bool:
        """Whether faults are looked for."""
        return self.mode == "strict"

    @property
    def schedule(self) -> int | None:
        """The seed of this process."""
        return None if self.seed is None else self.seed + worker()


def worker() -> int:
    """The number of this worker of pytest-xdist; 0 outside."""
    match = re.fullmatch(r"gw(\d+)", os.environ.get("PYTEST_XDIST_WORKER", ""))
    return int(match[1]) if match else 0


def test_devices() -> str:
    """The path of torch_accel.testing.TORCH_TEST_DEVICES, found without an import of torch."""
    spec = importlib.util.find_spec("torch_accel")
    assert spec is not None and spec.origin is not None
    return str(Path(spec.origin).with_name("testing") / "_torch_test_devices.py")


def choose(mode: str, seed: int | None, as_cuda: bool = False) -> Settings:
    """The settings of a mode. A variable that the user has set keeps its value, and a seed on the command line wins.

    Where accel stands in for CUDA, suites choose that by themselves.
    """
    wanted = {"ACCEL_MEMORY": MEMORY, "ACCEL_AUTOLOAD": "1", "TORCH_TEST_DEVICES": test_devices()}
    wanted |= {} if as_cuda else OTHERS
    if mode == "strict":
        wanted |= STRICT
        seed = _seed() if seed is None else seed
    elif seed is not None:
        raise pytest.UsageError("--accel-seed is the schedule of --accel=strict: add that option")
    environment = {name: value for name, value in wanted.items() if name not in os.environ}
    settings = Settings(mode, seed, environment)
    if settings.schedule is not None:
        environment["ACCEL_SCHEDULE_SEED"] = str(settings.schedule)
    return settings


def capability(text: str | None) -> tuple[int, int] | None:
    """The compute capability of an option as ``8.0``."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)\.(\d+)", text)
    if match is None:
        raise pytest.UsageError(f"--accel-capability {text}: expected two numbers, as 8.0")
    return int(match[1]), int(match[2])


def _seed() -> int:
    text = os.environ.get("ACCEL_SCHEDULE_SEED", "")
    return int(text) if text.isdecimal() else random.SystemRandom().randrange(1 << 31)


def apply(environment: dict[str, str]) -> dict[str, str | None]:
    """Sets variables, and returns what :func:`restore` needs.

    Raises:
        pytest.UsageError: torch_accel is initialised, so that one of them would have no effect.
    """
    late = [name for name in READ_ONCE if name in environment and os.environ.get(name) != environment[name]]
    library = sys.modules.get("torch_accel")
    if late and library is not None and library.is_initialized():
        assignments = " ".join(f"{name}={environment[name]}" for name in late)
        raise pytest.UsageError(
            "--accel comes too late: accel is initialised already, by a plugin or by the program that called pytest, and "
            f"reads its variables only then. Let it be used later, or set them yourself: {assignments}"
        )
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    return before


def restore(before: dict[str, str | None]) -> None:
    """Undoes :func:`apply`."""
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def lines(settings: Settings) -> Iterator[str]:
    """What the head of a run says."""
    memory = os.environ["ACCEL_MEMORY"]
    yield f"accel: {settings.mode}, {memory} of memory" + (" a worker" if "PYTEST_XDIST_WORKER" in os.environ else "")
    if settings.seed is not None:
        yield f"accel: schedule seed {settings.seed}; repeat this run with --accel=strict --accel-seed {settings.seed}"
