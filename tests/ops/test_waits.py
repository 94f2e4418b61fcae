"""Host waits over op_db, seen on a held stream."""

import json

import pytest

#: every so many operators of op_db; ./dev test --full ops takes all
STRIDE = 12


def figures(script, path, stride):
    script(
        f"""
        from torch_accel.testing import op_db
        op_db.main(["--part", "waits", "--samples", "2", "--shard", "0/{stride}", "--json", {str(path)!r}])
        """,
        timeout=900,
        ACCEL_RNG="philox",
    )
    return json.loads(path.read_text())


# All of op_db waits in fewer than 4 of 100 samples; a part of it may be unlucky.
@pytest.mark.parametrize("stride, least", [(STRIDE, 0.94), pytest.param(1, 0.96, marks=pytest.mark.full)])
def test_most_samples_run_without_a_wait(script, tmp_path, stride, least):
    result = figures(script, tmp_path / "waits.json", stride)
    assert result["watched"] > 1500 / stride
    assert result["without_wait"] / result["watched"] >= least, result["waiting"]


def test_a_wait_is_seen(script, tmp_path):
    """An operator that gives its result to the host, watched like all others."""
    script(
        f"""
        from torch_accel.testing import op_db
        op_db.main(["--part", "waits", "--op", "equal", "--json", {str(tmp_path / "waits.json")!r}])
        """
    )
    result = json.loads((tmp_path / "waits.json").read_text())
    assert result["watched"] > 0 and result["without_wait"] == 0
