"""The sample of docs/testing_your_library.md: green on the CPU, five faults in strict mode, none once repaired."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.docs.markdown import ROOT

SAMPLE = ROOT / "docs/examples/test_my_library"
FAULTS = {
    int(number): line
    for line, text in enumerate((SAMPLE / "my_library.py").read_text().splitlines(), 1)
    for number in re.findall(r"# fault (\d):", text)
}
#: fault -> the test that runs into it, and what its report must say beside the line
REPORTS = {
    1: ("test_positions", "Expected all tensors to be on the same device"),
    2: ("test_on_host", "sanitizer"),
    3: ("test_product_beside", "wait_stream"),
    4: ("test_norm_beside", "record_stream"),
    5: ("test_scaled", "made the host wait"),
}


@pytest.fixture
def sample(tmp_path):
    """Runs the sample's tests in a copy, as a user would, and returns the reports of those that failed."""
    folder = tmp_path / "sample"
    shutil.copytree(SAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))

    def run(*options: str, repaired: bool = False) -> dict[str, str]:
        if repaired:
            shutil.copy(folder / "my_library_fixed.py", folder / "my_library.py")
        env = {name: value for name, value in os.environ.items() if not name.startswith(("ACCEL_", "PYTEST_"))}
        command = [sys.executable, "-m", "pytest", "-p", "torch_accel_pytest", "-p", "no:cacheprovider", *options]
        ran = subprocess.run(
            command, cwd=folder, env={**env, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120
        )
        assert ran.returncode in (0, 1), ran.stdout + ran.stderr
        failed = re.findall(r"^_{3,} (\w+) _{3,}\n(.*?)(?=^_{3,} \w+ _{3,}\n|^=)", ran.stdout, flags=re.M | re.S)
        assert re.search(rf"\b{5 - len(failed)} passed" if len(failed) < 5 else "5 failed", ran.stdout), ran.stdout
        return dict(failed)

    return run


def test_every_fault_is_marked():
    assert set(FAULTS) == set(REPORTS) == {1, 2, 3, 4, 5}


def test_green_on_the_cpu(sample):
    assert sample() == {}


@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_strict_mode_names_every_fault_at_its_line(sample, seed):
    reports = sample("--accel=strict", "--accel-seed", seed)
    assert set(reports) == {test for test, _ in REPORTS.values()}
    for fault, (test, text) in REPORTS.items():
        report = reports[test]
        assert text in report and "pluggy" not in report, report
        assert re.search(rf'my_library\.py(:|", line ){FAULTS[fault]}\b', report), report


@pytest.mark.parametrize("mode", ["--accel", "--accel=strict"])
def test_green_once_repaired(sample, mode):
    assert sample(mode, repaired=True) == {}
