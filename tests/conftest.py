"""Fixtures of all tests that import torch. tests/driver does not: it runs where there is no torch."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def pytest_collection_modifyitems(items):
    """The file that takes longest comes first: begun last, it would run alone while the other processes have nothing to do."""
    items.sort(key=lambda item: item.path.name != "test_conformance.py")


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


TWO_DEVICES = """
import contextlib, faulthandler, io, json, sys, traceback, warnings
for line in sys.stdin:
    faulthandler.dump_traceback_later(60, exit=True)
    printed, error = io.StringIO(), ""
    try:
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            exec(compile(json.loads(line), "<two_devices>", "exec"), {})
    except BaseException:
        error = traceback.format_exc()
    faulthandler.cancel_dump_traceback_later()
    print(json.dumps([printed.getvalue(), error]), flush=True)
"""


@pytest.fixture(scope="session")
def two_devices():
    """Runs Python source where there are two devices, in one process for all tests: ``two_devices(source)`` -> its output.

    A failure is an AssertionError with the traceback; a hang ends the process, and a new one is made.
    """
    processes = []

    def run(source: str) -> str:
        if not processes or processes[-1].poll() is not None:
            environment = {**os.environ, "ACCEL_LAUNCH_BLOCKING": "0", "ACCEL_DEVICES": "2"}
            command = [sys.executable, "-c", TWO_DEVICES]
            pipe = subprocess.PIPE
            processes.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, env=environment))
        process = processes[-1]
        process.stdin.write(json.dumps(textwrap.dedent(source)) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        assert answer, "the process hung or died"
        output, error = json.loads(answer)
        assert not error, error
        return output

    yield run
    for process in processes:
        process.communicate()


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
