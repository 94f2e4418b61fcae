"""Fixtures of all tests that import torch. tests/driver does not: it runs where there is no torch."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def script():
    """Runs Python source in a process of its own: ``script(source, **environment)`` -> CompletedProcess.

    A hang is a failure: the watchdog of the child prints the stacks and ends it.
    """

    def run(source: str, timeout: float = 60, check: bool = True, **environment: str) -> subprocess.CompletedProcess:
        prologue = f"import faulthandler; faulthandler.dump_traceback_later({timeout}, exit=True)\n"
        done = subprocess.run(
            [sys.executable, "-c", prologue + textwrap.dedent(source)],
            capture_output=True,
            text=True,
            cwd=ROOT,
            # Scripts are about queued work: they ask for blocking launches themselves.
            env={
                **os.environ,
                "ACCEL_LAUNCH_BLOCKING": "0",
                **{name: str(value) for name, value in environment.items()},
            },
            timeout=timeout + 60,
        )
        if check:
            assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run


@pytest.fixture(autouse=True, scope="session")
def threads_of_the_device():
    """Under ACCEL_THREADS the CPU computes with as many threads: the bits of a result depend on them."""
    if "ACCEL_THREADS" in os.environ:
        import torch

        torch.set_num_threads(int(os.environ["ACCEL_THREADS"]))


@pytest.fixture
def queued():
    """For tests that launches return at once, where ACCEL_LAUNCH_BLOCKING=1 is being tried."""
    from torch_accel.testing import launch_blocking

    with launch_blocking(False):
        yield
