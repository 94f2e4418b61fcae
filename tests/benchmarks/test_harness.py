"""The harness sees what is planted, and says no more than it has seen."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from expecttest import assert_expected_inline

from benchmarks import harness
from benchmarks.harness import Measured, Target, Workload, bootstrap, measure


class Seconds:
    """A clock of a given cost, instead of the machine's."""

    def __init__(self, costs: dict[str, list[float]]) -> None:
        self.costs = {name: iter(values) for name, values in costs.items()}
        self.order: list[str] = []

    def __call__(self, work, calls: int) -> float:
        self.order.append(work())
        return next(self.costs[work()])


def workload(**options) -> Workload:
    return Workload("work", lambda: lambda: "base", lambda: lambda: "other", 1, **options)


def noisy(ratio: float, rounds: int, seed: int = 0) -> dict[str, list[float]]:
    """Costs of base and other, the warm-up first, with 10 % of noise each and a slow stretch that both see."""
    random = np.random.default_rng(seed)
    drift = np.where(np.arange(rounds + 1) < rounds // 2, 1.0, 3.0)
    base = drift * random.lognormal(0, 0.1, rounds + 1)
    return {"base": list(base), "other": list(ratio * drift * random.lognormal(0, 0.1, rounds + 1))}


def test_a_planted_slowdown_is_seen():
    slower = measure(workload(), 31, Seconds(noisy(1.2, 31)))
    assert slower.interval[0] > 1, slower
    assert slower.interval[0] <= slower.ratio <= slower.interval[1]
    same = measure(workload(), 31, Seconds(noisy(1.0, 31)))
    assert same.interval[0] < 1 < same.interval[1], same


def test_the_interval_covers_a_known_ratio():
    covered = 0
    for seed in range(200):
        low, high = measure(workload(), 15, Seconds(noisy(1.3, 15, seed))).interval
        covered += low <= 1.3 <= high
    assert 180 <= covered <= 200  # 95 % of 200, and three standard deviations


def test_a_real_slowdown_is_seen():
    """Work of three times the steps, timed by the real clock in CPU time, which no neighbour lengthens."""

    def steps(count: int):
        return lambda: sum(range(count))

    def cpu_seconds(work, calls: int) -> float:
        import time

        start = time.thread_time()
        for _ in range(calls):
            work()
        return (time.thread_time() - start) / calls

    done = measure(Workload("sum", lambda: steps(20_000), lambda: steps(60_000), 5), 9, cpu_seconds)
    assert done.interval[0] > 1.5, done


def test_both_ways_are_timed_in_turn_after_a_warm_up():
    clock = Seconds({"base": [1.0] * 5, "other": [2.0] * 5})
    done = measure(workload(), 4, clock)
    assert clock.order == ["base", "other"] + ["base", "other", "other", "base"] * 2
    assert (done.base, done.other, done.ratio, done.rounds) == (1e6, 2e6, 2.0, 4)


def test_the_limit_ends_the_rounds_but_leaves_five():
    assert measure(workload(), 20, Seconds({"base": [1.0] * 21, "other": [1.0] * 21}), limit=0).rounds == 5


@pytest.mark.parametrize(
    ("figure", "per", "expected"), [("ratio", 1, 2.0), ("speed", 1, 0.5), ("added", 1, 1000.0), ("added", 10, 100.0)]
)
def test_figures(figure: str, per: int, expected: float):
    done = measure(workload(figure=figure, per=per), 5, Seconds({"base": [1.0] * 6, "other": [2.0] * 6}))
    assert done.ratio == pytest.approx(expected)


def test_verdicts():
    said = [
        Target(1.0).verdict(0.8, 0.9, 0.95),
        Target(1.0).verdict(0.9, 0.98, 1.1),
        Target(1.0).verdict(0.9, 1.05, 1.1),
        Target(1.0).verdict(1.1, 1.2, 1.3),
        Target(4, least=True).verdict(4.5, 5, 6),
        Target(4, least=True).verdict(2, 3, 3.5),
    ]
    assert_expected_inline(
        "\n".join(said),
        """\
met
open, met at the median
open, missed at the median
missed
met
missed""",
    )
    assert (str(Target(1.0)), str(Target(4, least=True))) == ("<= 1", ">= 4")


def test_bootstrap_of_one_value_is_that_value():
    assert bootstrap([3.0] * 7) == (3.0, 3.0)


def test_json_and_comparison(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["tiny.py"])
    monkeypatch.setenv("COLUMNS", "200")
    out = tmp_path / "runs.json"

    def run(cost: float, *arguments: str) -> list[Measured]:
        clock = Seconds({"base": [1.0] * 6, "other": [cost] * 6})
        return harness.main("Tiny.", [workload(target=Target(1.5))], rounds=5, clock=clock, argv=list(arguments))

    run(1.0, "--json", str(out))
    (line,) = out.read_text().splitlines()
    record = json.loads(line)
    assert {"machine", "load", "commit", "threads", "cores", "torch", "omp_wait_policy"} <= record.keys()
    assert Measured(**record["workloads"][0]).verdict == "met"
    for cost, word in ((1.0, "same"), (2.0, "worse"), (0.5, "better")):
        capsys.readouterr()
        run(cost, "--compare", str(out))
        assert word in capsys.readouterr().out
    (done,) = run(1.0)
    with pytest.raises(ValueError, match=r"has no run of other with OMP_WAIT_POLICY PASSIVE"):
        harness.compared([replace(done)], out, "other", "PASSIVE")
