"""All of torch's op_db on accel, against the CPU: five dtypes, three samples each."""

import json
import os
import subprocess
import sys

import pytest

SHARDS = 2

#: operator -> cause. Each must fail: an entry that passes is a test failure, as is any other operator that fails.
KNOWN_FAILURES = {
    "nn.functional.linear_cross_entropy.chunked_none": "bfloat16, one sample: torch.nn.LinearCrossEntropyOptions picks the accumulation dtype by device",
}


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """The comparison, in processes of one thread each, drawing the CPU's random numbers."""
    folder = tmp_path_factory.mktemp("op_db")
    environment = {**os.environ, "ACCEL_RNG": "cpu", "ACCEL_FALLBACK": "allow"}
    shards = []
    for shard in range(SHARDS):
        path = folder / f"{shard}.json"
        command = [
            sys.executable,
            "-m",
            "torch_accel.testing.op_db",
            "--shard",
            f"{shard}/{SHARDS}",
            "--json",
            str(path),
        ]
        shards.append(
            (path, subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))
        )
    parts = []
    for path, process in shards:
        _, errors = process.communicate()
        assert path.exists(), f"a shard died with exit code {process.returncode}:\n{errors.decode()[-3000:]}"
        parts.append(json.loads(path.read_text()))
    return {key: sum((part[key] for part in parts), start=[] if key == "failures" else 0) for key in parts[0]}


def test_only_the_known_operators_fail(result):
    failed = {failure["op"] for failure in result["failures"]}
    text = "\n".join(f"{f['op']} {f['dtype']} sample {f['sample']}: {f['reason']}" for f in result["failures"])
    assert failed == set(KNOWN_FAILURES), text


def test_figures(result):
    operators, failed = result["operators"], {failure["op"] for failure in result["failures"]}
    print(f"operators {operators - len(failed)}/{operators}, samples bit-equal {result['exact']}/{result['samples']}")
    assert operators > 600
    assert len(failed) <= 0.03 * operators
    assert result["exact"] >= 0.99 * result["samples"]
