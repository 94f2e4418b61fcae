"""The table of benchmarks.triton at two counts of threads."""

from dataclasses import asdict

from expecttest import assert_expected_inline
from rich.console import Console

from benchmarks import triton_threads
from benchmarks.harness import Measured


def ran(threads, base, other):
    measured = Measured("add, 1M", base, other, 1.0, base / other, 1.0, (1.0, 1.0), 15, "speed")
    return {"threads": threads, "workloads": [asdict(measured)]}


def test_the_counts_stand_side_by_side():
    console = Console(width=100)
    with console.capture() as shown:
        console.print(triton_threads.side_by_side([ran(1, 400.0, 500.0), ran(2, 300.0, 250.0)]))
    assert_expected_inline(
        shown.get(),
        """\
┏━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━━━━━━━━━┳━━━━━━━━┓
┃ workload ┃ accel, us, 1 thr. ┃ x torch ┃ accel, us, 2 thr. ┃ x torch ┃ accel, 2/1 thr. ┃ torch  ┃
┡━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━━━━━━━━╇━━━━━━━━┩
│ add, 1M  │ 500.0             │ 0.80    │ 250.0             │ 1.20    │ 2.00 x          │ 1.33 x │
└──────────┴───────────────────┴─────────┴───────────────────┴─────────┴─────────────────┴────────┘
""",
    )


def test_each_count_is_a_process_of_its_own(monkeypatch, capsys):
    counts = []

    def run(threads, arguments):
        counts.append((threads, arguments))
        facts = dict.fromkeys(("rounds", "cores", "machine", "load", "omp_wait_policy", "torch", "commit"), 0)
        return {**facts, **ran(threads, 400.0, 500.0)}

    monkeypatch.setattr(triton_threads, "run", run)
    triton_threads.main(["--threads", "1,2,4", "-k", "add"])
    assert counts == [(1, ["-k", "add"]), (2, ["-k", "add"]), (4, ["-k", "add"])]
    assert "4 threads on" in capsys.readouterr().out
