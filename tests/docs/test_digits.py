"""docs/examples: the network learns on accel, step for step as it does on the CPU."""

import importlib.util
import io
import json
import os
import subprocess
import sys

import pytest
from expecttest import TestCase
from rich.console import Console

from tests.docs.markdown import ROOT

EXAMPLES = ROOT / "docs/examples"
spec = importlib.util.spec_from_file_location("compare", EXAMPLES / "compare.py")
compare = importlib.util.module_from_spec(spec)
spec.loader.exec_module(compare)


def train(device: str, folder, epochs: int) -> dict:
    file = folder / f"{device}.json"
    command = [sys.executable, EXAMPLES / "digits.py", "--device", device]
    env = {**os.environ, "ACCEL_RNG": "cpu", "ACCEL_FALLBACK": "allow", "OMP_NUM_THREADS": "2"}
    subprocess.run([*command, "--epochs", str(epochs), "--json", file], env=env, check=True, timeout=300)
    return json.loads(file.read_text())


def test_accel_learns_as_the_cpu_does(tmp_path):
    accel, cpu = (train(device, tmp_path, epochs=5) for device in ("accel", "cpu"))
    assert compare.complaints(accel, cpu) == []
    assert accel["peak_memory"] > 0


@pytest.mark.full
def test_demo():
    ran = subprocess.run([ROOT / "dev", "demo"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "peak device memory" in ran.stdout


def report(device: str, losses: list[float], accuracy: float, **more) -> dict:
    epochs = [{"loss": loss, "accuracy": accuracy, "seconds": 0.5} for loss in losses]
    return {"device": device, "threads": 2, "epochs": epochs, **more}


class TestTexts(TestCase):
    def test_table(self):
        accel = report(
            "accel",
            [0.5, 0.25],
            0.99,
            peak_memory=3 << 20,
            fallback={"aten::add.out": 2, "aten::mm": 7},
        )
        cpu = report("cpu", [0.5, 0.125], 0.98)
        file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")  # expecttest keeps ASCII only
        Console(file=file, width=100).print(compare.table(accel, cpu))
        file.seek(0)
        printed = "\n".join(line.rstrip() for line in file)
        self.assertExpectedInline(
            printed,
            """\
                                    digits, 2 threads
+---------------------------------------------------------------------------------------+
|       |       loss |       loss |           | accuracy | accuracy | seconds | seconds |
| epoch |      accel |        cpu | bit-equal |    accel |      cpu |   accel |     cpu |
|-------+------------+------------+-----------+----------+----------+---------+---------|
|     1 | 0.50000000 | 0.50000000 | yes       |    99.0% |    98.0% |    0.50 |    0.50 |
|     2 | 0.25000000 | 0.12500000 | NO        |    99.0% |    98.0% |    0.50 |    0.50 |
|-------+------------+------------+-----------+----------+----------+---------+---------|
|   all |            |            | NO        |          |          |    1.00 |    1.00 |
+---------------------------------------------------------------------------------------+
time accel/cpu: 1.00
peak device memory: 3.0 MiB
operators that fell back, with calls (2): aten::mm 7, aten::add.out 2""",
        )

    def test_complaints(self):
        accel = report("accel", [0.5, 0.25], 0.96)
        cpu = report("cpu", [0.5, 0.125], 0.98)
        self.assertExpectedInline(
            "\n".join(compare.complaints(accel, cpu)),
            """\
The losses differ: run both with ACCEL_RNG=cpu and the same OMP_NUM_THREADS.
On accel the network reached 96.0%, less than 97%.""",
        )
