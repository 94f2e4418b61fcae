"""docs/performance.md is what docs/performance.json says."""

import dataclasses

import pytest

from benchmarks import build, callgrind, device, host, page, scaling
from benchmarks.harness import Measured

HEAD = {"machine": "a machine", "cores": 2, "threads": 2, "load": 2.0, "torch": "2.13", "commit": "abc"}


def run(script: str, policy: str, ratio: float) -> dict:
    m = Measured(
        "add", 1.0, ratio, ratio, ratio, ratio, (ratio - 0.1, ratio + 0.1), 15, target="<= 1", verdict="missed"
    )
    return {
        "script": script,
        "base": "CPU",
        "other": "accel",
        "omp_wait_policy": policy,
        **HEAD,
        "workloads": [dataclasses.asdict(m)],
    }


RUNS = [
    *(run(script, policy, ratio) for script in page.TITLES for policy, ratio in (("default", 1.25), ("PASSIVE", 1.5))),
    {"script": "instructions", "counts": {"x + y": [100, 90]}, "add": [["the record", 0, 30], ["torch", 100, 60]]},
    {
        "script": "build",
        "seconds": 590.4,
        "files": 98,
        "library_bytes": 5_800_000,
        "slowest": [["structured_0", 24.0]],
    },
]


def test_the_page_tells_what_was_measured():
    text = page.text(RUNS)
    assert text.count("| add | 1.25 | 1.15 to 1.35 | <= 1 | missed | 1.50 | 1.40 to 1.60 |") == len(page.TITLES)
    assert text.count("- add: 1.25, missed. Not explained yet.") == len(page.TITLES)
    assert "| `x + y` | 100 | 90 | 0.90 |" in text
    assert (
        "the compiler takes 590 s for 98 files, half of that with two jobs on two cores; the library has 5.8 MB" in text
    )
    assert "| `structured_0` | 24.0 |" in text
    assert "| **in all** | **100** | **90** |" in text
    assert "a machine, 2 cores, 2 threads, torch 2.13, commit abc, load 2.0 to 2.0" in text


def test_the_committed_page_fits_the_committed_figures():
    if not page.DATA.exists():
        pytest.skip("docs/performance.json is written by ./dev bench --page, which has not been run yet")
    runs = page.load()
    assert page.PAGE.read_text() == page.text(runs)
    assert page.UNEXPLAINED not in page.missed_text(runs)
    counted = next(r for r in runs if r["script"] == "instructions")
    for which, name in enumerate(("CPU", "accel")):
        total = counted["counts"]["x + y"][which]
        lines = sum(line[1 + which] for line in counted["add"])
        assert abs(total - lines) <= len(counted["add"]), name  # each line is rounded down
    for script in page.suites(runs):
        picture = (page.PICTURES / f"performance_{script}.svg").read_text()
        for m, _ in page.pairs(runs, script):
            if m["figure"] == "ratio" and m["unit"] == "us":
                assert m["name"] in picture, (script, m["name"])


def test_explanations_are_of_work_that_has_a_target():
    known = {w.name for w in (*device.WORKLOADS, *host.WORKLOADS, *scaling.WORKLOADS) if w.target}
    assert set(page.EXPLAINED) <= known


def test_the_slowest_files_of_a_build():
    log = "# ninja log v7\n1\t2001\t17\t/b/csrc/one.o\tabc\n5\t8005\t17\t/b/generated/two.o\tdef\n"
    assert build.slowest(log) == [("generated/two", 8.0), ("csrc/one", 2.0)]


def test_pictures(tmp_path):
    pytest.importorskip("matplotlib", reason="draws the pictures of docs/performance.md; pip install '.[bench]'")
    page.draw(RUNS, "host", tmp_path / "host.svg")
    first = (tmp_path / "host.svg").read_text()
    assert ">add</text>" in first
    page.draw(RUNS, "host", tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_text() == first  # so that git shows what changed


CALLGRIND = """\
version: 1
events: Ir
ob=(1) /usr/lib/libtorch_cpu.so
fn=(1) at::_ops::add
10 100
+2 20
cob=(2) /here/torch_accel/_C.cpython-311-x86_64-linux-gnu.so
cfn=(2) accel::detail::enqueue(char const*)
calls=40 0
* 5000
* 3
ob=(2)
fn=(2)
5 700
cfn=(3) accelLaunchBegin
calls=40 0
* 900
fn=(3)
9 200
summary: 1023
"""


def test_callgrind_counts_every_instruction_once(tmp_path):
    path = tmp_path / "callgrind.out"
    path.write_text(CALLGRIND)
    costs = callgrind.spent(path)
    assert sum(costs.values()) == callgrind.total(path) == 1023
    places = {place: cost for place, cost in callgrind.by_place(costs).items() if cost}
    assert places == {
        "accel: the stream's ring": 200,
        "accel: the record": 700,
        "torch: dispatcher, autograd, tensor objects; the CPU's also its kernel": 123,
    }
