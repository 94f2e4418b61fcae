"""The sparse samples of torch's op_db on accel, against the CPU."""

import os
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def report():
    """The comparison, in a process that draws the CPU's random numbers."""
    command = [sys.executable, "-m", "torch_accel.testing.sparse_db", "--samples", "2"]
    environment = {**os.environ, "ACCEL_RNG": "cpu", "ACCEL_FALLBACK": "allow"}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_every_sample_is_the_cpus(report):
    assert report.returncode == 0, report.stdout + report.stderr
    lines = report.stdout.splitlines()
    assert len(lines) == 5
    for line in lines:
        figures = line.split(": samples ")[1]
        right, exact = (figure.split("/") for figure in figures.split(", bit-equal "))
        assert right[0] == right[1] == exact[0] == exact[1], line
        assert int(right[1]) > 100, line
