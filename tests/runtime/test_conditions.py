"""The tests of operators and of the runtime, once more under conditions that shake memory and schedule."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

CONDITIONS = {
    "poisoned memory": {"ACCEL_POISON": "1"},
    "blocking launches": {"ACCEL_LAUNCH_BLOCKING": "1"},
    "late launches": {"ACCEL_DELAY_US": "200"},
    "every record twice": {"ACCEL_REPLAY_TWICE": "1"},
    "watched for races": {"ACCEL_SANITIZER": "raise"},
    "schedule 1": {"ACCEL_SCHEDULE_SEED": "1"},
    "schedule 2": {"ACCEL_SCHEDULE_SEED": "2", "ACCEL_POISON": "1"},
    "schedule 3": {"ACCEL_SCHEDULE_SEED": "3", "ACCEL_THREADS": "1"},
}


@pytest.mark.full
@pytest.mark.parametrize("condition", CONDITIONS)
def test_under(condition):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-m",
        "not full and not sanitizer",
        "tests/aten",
        "tests/runtime",
    ]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **CONDITIONS[condition]}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-5000:]
