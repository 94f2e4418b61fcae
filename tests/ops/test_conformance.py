"""The conformance suite: a sample of it in every run, all of it with ./dev test --full ops."""

import json
import subprocess
import sys

import pytest

#: about four minutes on two cores
SAMPLE_PERCENT = 20


def run(path, *arguments):
    """The results of the suite in two processes; progress goes to the terminal under -s."""
    command = [sys.executable, "-m", "torch_accel.conformance", "--processes", "2", "--json", str(path), *arguments]
    code = subprocess.run(command).returncode
    results = json.loads(path.read_text())
    assert code == 0, [result["end"] for result in results if result["outcome"] not in ("passed", "xfailed", "skipped")]
    return results


def share(results, kind, key):
    """Part of the comparisons of a kind of test that are right, or exact."""
    chosen = [result for result in results if result.get("kind") == kind]
    return sum(result[key] for result in chosen) / sum(result["samples"] for result in chosen)


def check_figures(results):
    assert share(results, "forward", "right") >= 0.995
    assert share(results, "forward", "exact") >= 0.99
    assert share(results, "backward", "exact") >= 0.99
    assert share(results, "errors", "right") >= 0.97
    optimizers = {result["kind"] for result in results if result.get("kind", "").startswith("optimizer_")}
    assert optimizers and all(share(results, kind, "exact") == 1 for kind in optimizers)


def test_sample(tmp_path):
    check_figures(run(tmp_path / "results.json", "--sample", str(SAMPLE_PERCENT)))


@pytest.mark.full
def test_everything(tmp_path):
    results = run(tmp_path / "results.json")
    check_figures(results)
    assert len({result["dtype"] for result in results if result.get("kind") == "forward"}) >= 12
