"""The suite notices what it is for: each comparison fails for the difference that it looks for."""

import json

import pytest
import torch

from torch_accel.conformance import __main__ as runner
from torch_accel.conformance import judge, known_failures
from torch_accel.conformance.compare import Outcome, Replica, Tally, aliasing, compare, normalised
from torch_accel.conformance.known_failures import KNOWN, Known
from torch_accel.conformance.plugin import chosen


def test_equal_and_exact():
    x = torch.randn(3, 4)
    assert compare([x.to("accel"), 1.0, float("nan")], [x, 1.0, float("nan")])
    assert not compare((x * (1 + 1e-7)).to("accel"), x)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x,
        lambda x: x.to("accel") + 1,
        lambda x: x.to("accel").double(),
        lambda x: x.to("accel").t().contiguous().t(),
        lambda x: x.to("accel")[:2],
        lambda x: [x.to("accel")] * 2,
        lambda x: 1.0,
    ],
    ids=["device", "value", "dtype", "strides", "shape", "number of results", "type"],
)
def test_a_difference_is_noticed(change):
    x = torch.randn(3, 4)
    with pytest.raises(AssertionError):
        compare(change(x), x)


def test_errors_are_compared_by_type_and_text():
    tally = Tally()
    tally.check(0, Outcome(error=RuntimeError("on accel:0")), Outcome(error=RuntimeError("on cpu")))
    assert (tally.right, tally.failures) == (1, [])
    tally.check(1, Outcome(error=ValueError("on cpu")), Outcome(error=RuntimeError("on cpu")))
    tally.check(2, Outcome(error=RuntimeError("other")), Outcome(error=RuntimeError("on cpu")))
    tally.check(3, Outcome(1), Outcome(error=RuntimeError("on cpu")))
    tally.check(4, Outcome(error=RuntimeError("on accel")), Outcome(1))
    assert (tally.samples, tally.right, len(tally.failures)) == (5, 1, 4)


def test_a_late_error_is_told_from_one_at_the_call():
    index = torch.tensor([7], device="accel")
    tally = Tally()
    torch.nn.functional.nll_loss(torch.zeros(1, 3, device="accel"), index)
    tally.check(0, Outcome(None), Outcome(error=RuntimeError("something that needs no data")))
    assert "raised late" in tally.failures[0]
    torch.accelerator.synchronize()


def test_normalised_texts():
    assert normalised("accelFloatType on accel:0") == normalised("CPUFloatType on cpu")
    assert normalised("got torch.accel.FloatTensor") == normalised("got torch.FloatTensor")


def test_replica_keeps_layout_and_sharing():
    base = torch.arange(24.0)
    x, y = base[4:].view(4, 5).t(), base[2:8]
    z = torch.randn(3, dtype=torch.complex64).conj()
    wide = torch.ones(3, 1).expand(3, 4)
    a, b, c, d = Replica("accel")((x, y, z, wide))
    assert (a.stride(), a.storage_offset(), d.stride()) == (x.stride(), 4, wide.stride())
    assert c.is_conj() and torch.equal(c.cpu(), z)
    assert aliasing((a,), (b,)) == [(0, 0)]
    b.fill_(-1)
    assert (a.cpu() == -1).sum() == 4
    assert (base == torch.arange(24.0)).all()


def test_samples_are_stable_and_nested():
    names = [f"TestOperatorsACCEL::test_{i}" for i in range(5000)]
    small = [n for n in names if chosen(n, 5, 0, 1)]
    large = [n for n in names if chosen(n, 20, 0, 1)]
    assert set(small) < set(large) and 180 < len(small) < 320 and 850 < len(large) < 1150
    assert sorted(n for k in range(3) for n in names if chosen(n, 20, k, 3)) == sorted(large)
    assert small[:3] == ["TestOperatorsACCEL::test_32", "TestOperatorsACCEL::test_56", "TestOperatorsACCEL::test_69"]


def test_known_failures_are_few_and_explained():
    assert len(KNOWN) <= 60
    assert len({entry[:3] for entry in KNOWN}) == len(KNOWN)
    assert all(len(entry.cause) > 20 for entry in KNOWN)


@pytest.mark.parametrize("fails", [True, False])
def test_a_known_failure_must_fail(monkeypatch, fails):
    monkeypatch.setattr(known_failures, "KNOWN", (Known("op", "float32", "forward", "a cause in torch"),))

    def check(tally):
        tally.samples += 1
        if fails:
            tally.fail(0, RuntimeError("differs"))

    expected = pytest.xfail.Exception if fails else pytest.fail.Exception
    with pytest.raises(expected):
        judge.judge("forward", "op", torch.float32, check)


def test_a_crash_names_its_test_and_the_rest_runs(monkeypatch, tmp_path, capsys):
    (tmp_path / "test_x.py").write_text(
        "import os, signal\n"
        "def test_before(): pass\n"
        "def test_crash(): os.kill(os.getpid(), signal.SIGSEGV)\n"
        "def test_after(): pass\n"
        "def test_wrong(): assert False\n"
    )
    monkeypatch.setattr(runner, "SUITE", tmp_path)
    assert runner.main(["--processes", "2", "--json", str(tmp_path / "out.json")]) == 1
    results = {r["end"]: r for r in json.loads((tmp_path / "out.json").read_text())}
    assert {name: r["outcome"] for name, r in results.items()} == {
        "test_before": "passed",
        "test_crash": "crashed",
        "test_after": "passed",
        "test_wrong": "failed",
    }
    assert "SIGSEGV" in results["test_crash"]["text"]
    assert "CRASHED test_crash" in capsys.readouterr().out
