"""For ``pytest --pyargs torch_accel.conformance``: sets what ``python -m torch_accel.conformance`` gives its processes."""

import os

import pytest

import torch_accel

from . import ENVIRONMENT


def pytest_pycollect_makemodule() -> None:
    """Sets the variables before a file of tests is imported, for the suite alone: a test run of it is a run of its own."""
    missing = {name: value for name, value in ENVIRONMENT.items() if os.environ.get(name) != value}
    if missing and torch_accel.is_initialized():
        raise pytest.UsageError(
            "accel is initialised already, and the conformance suite needs other settings: run it alone, or set "
            + " ".join(f"{name}={value}" for name, value in missing.items())
        )
    os.environ.update(missing)
