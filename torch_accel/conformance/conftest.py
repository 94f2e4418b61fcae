"""For ``pytest --pyargs torch_accel.conformance``: sets what ``python -m torch_accel.conformance`` gives its processes."""

import os

import pytest

import torch_accel

from . import ENVIRONMENT

_missing = {name: value for name, value in ENVIRONMENT.items() if os.environ.get(name) != value}
if _missing and torch_accel.is_initialized():
    raise pytest.UsageError(
        "accel is initialised already, and the conformance suite needs other settings: run it alone, or set "
        + " ".join(f"{name}={value}" for name, value in _missing.items())
    )
os.environ.update(_missing)
