"""The gate: no call costs the host 5 % more instructions, in proportion to the CPU's, than its committed baseline."""

import json
import shutil

import pytest

from benchmarks import instructions


def test_what_is_worse():
    assert instructions.worse({"a": 1.04, "b": 1.06, "new": 1.0}, {"a": 1.0, "b": 1.0}) == ["b", "new"]


@pytest.mark.full
@pytest.mark.skipif(
    shutil.which("valgrind") is None, reason="valgrind, which counts the instructions, is not installed"
)
@pytest.mark.skipif(not instructions.BASELINE.exists(), reason="no baseline: python -m benchmarks.instructions --write")
def test_no_call_exceeds_its_baseline():
    counts = instructions.record()["counts"]
    ratios = {name: accel / cpu for name, (cpu, accel) in counts.items()}
    assert instructions.worse(ratios, json.loads(instructions.BASELINE.read_text())["ratios"]) == []
