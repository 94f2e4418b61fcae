"""docs/performance.md, made of docs/performance.json: tables, pictures, and where the time of one add goes.

    python -m benchmarks.page

``./dev bench --page`` measures, writes the JSON and then the page; this writes the page alone. The JSON is a line for
each suite and policy, as harness.py writes it, one of instructions.py and one of build.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "docs/performance.json"
PAGE = ROOT / "docs/performance.md"
PICTURES = ROOT / "docs/figures"
TARGET_COLUMNS = ("work", "default", "interval", "target", "", "PASSIVE", "interval")
TITLES = {
    "host": "The host",
    "device": "The device",
    "optimizers": "Steps of optimizers: a launch an operator, foreach, fused",
    "scaling": "Scaling over streams, devices and host threads",
}

#: work -> why its target is out of reach, where a run misses it
_HEAP = (
    "glibc keeps freed blocks of up to 32 MiB in its heap, so that CPU tensors of this size find their pages again, as "
    "accel's cached blocks do; bigger ones it returns to the system, which costs a fault for each page."
)
EXPLAINED = {
    "add, 1 MiB": _HEAP,
    "add, 16 MiB": _HEAP,
    "empty_strided, 8x8": "Of the call, most is Python's, the parsing of the arguments and the tensor object: on the device "
    "`meta`, which allocates nothing, it takes more than half of the CPU's time too (a row below).",
}

UNEXPLAINED = "Not explained yet."

HEAD = """# Performance

As fast as the host allows, measured: each figure is accel's time as a ratio to the same work on CPU tensors (or to what the row names), both in one process, in turn. `./dev bench` prints it;
`./dev bench --page` writes this page from a new run. The value is the median over the rounds, the interval its 95 % bootstrap interval. *default* and *PASSIVE* are `OMP_WAIT_POLICY`: targets count in the default one,
where the OpenMP teams of the CPU's and of accel's kernels spin beside each other on the same cores. `python -m benchmarks.NAME --help` tells how to run a suite alone and how to compare with an earlier run.
"""


def cell(m: dict[str, Any], value: float) -> str:
    """A value as its figure is read."""
    return f"{value:+.0f} ms" if m["figure"] == "added" else f"{value:.2f}"


def interval(m: dict[str, Any]) -> str:
    """The 95 % interval."""
    low, high = m["interval"]
    return f"{cell(m, low)} to {cell(m, high)}"


def suites(runs: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """script -> policy -> run."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for run in runs:
        if "workloads" in run:
            found.setdefault(run["script"], {})[run["omp_wait_policy"]] = run
    return found


def pairs(runs: list[dict[str, Any]], script: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each workload under the default policy and under PASSIVE."""
    policies = suites(runs)[script]
    passive = {m["name"]: m for m in policies["PASSIVE"]["workloads"]}
    return [(m, passive[m["name"]]) for m in policies["default"]["workloads"]]


def target_rows(runs: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """The workloads that have a target."""
    return [
        (m["name"], cell(m, m["ratio"]), interval(m), m["target"], m["verdict"], cell(p, p["ratio"]), interval(p))
        for script in suites(runs)
        for m, p in pairs(runs, script)
        if m["target"]
    ]


def missed_text(runs: list[dict[str, Any]]) -> str:
    """The targets that were not met for certain under the default policy, each with its reason."""
    rows = [row for row in target_rows(runs) if row[4] != "met"]
    lines = []
    for name, value, _, _, verdict, *_ in rows:
        unsaid = "The interval holds the target: noise hides the answer." if verdict.startswith("open") else UNEXPLAINED
        lines.append(f"- {name}: {value}, {verdict}. {EXPLAINED.get(name, unsaid)}\n")
    return f"## Targets not met, or not for certain\n\n{''.join(lines) or 'None.' + chr(10)}"


def amount(m: dict[str, Any], value: float) -> str:
    """A time or a size."""
    if m["unit"] == "bytes":
        return f"{value:,.0f} B"
    return f"{value / 1e3:,.1f} ms" if value >= 1e4 else f"{value:,.2f} us"


def table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table of Markdown."""
    lines = [columns, tuple("---" for _ in columns), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def suite_text(runs: list[dict[str, Any]], script: str) -> str:
    """The section of a suite."""
    run = suites(runs)[script]["default"]
    rows = [
        (
            m["name"],
            amount(m, m["base"]),
            amount(m, m["other"]),
            cell(m, m["ratio"]),
            interval(m),
            cell(p, p["ratio"]),
            interval(p),
        )
        for m, p in pairs(runs, script)
    ]
    columns = ("work", run["base"], run["other"], "default", "interval", "PASSIVE", "interval")
    return (
        f"## {TITLES[script]}\n\n`python -m benchmarks.{script}`\n\n{table(columns, rows)}\n"
        f"![Ratios with their intervals](figures/performance_{script}.svg)\n"
    )


def instructions_text(counted: dict[str, Any]) -> str:
    """Instructions of calls, and where those of one add go."""
    rows = [
        (f"`{name}`" if "(" in name or " " in name else name, f"{cpu:,}", f"{accel:,}", f"{accel / cpu:.2f}")
        for name, (cpu, accel) in counted["counts"].items()
    ]
    lines = [(line, f"{cpu:,}", f"{accel:,}") for line, cpu, accel in counted["add"]]
    total = ("**in all**", f"**{sum(x[1] for x in counted['add']):,}**", f"**{sum(x[2] for x in counted['add']):,}**")
    return (
        "## Instructions of a call\n\nCounted by valgrind's callgrind, so that a busy machine does not matter: "
        "CPU tensors compute meanwhile, accel only enqueues. `python -m benchmarks.instructions --check` fails where a "
        "ratio exceeds its baseline, `benchmarks/instructions.json`, by more than 5 %; times are reported, never gated."
        f"\n\n{table(('call', 'CPU', 'accel', 'accel/CPU'), rows)}\n"
        "### Where the time of one add goes\n\n`x + y` on 8x8 float32, from Python and back, the freeing of the result "
        "included: the instructions by the place where they are spent.\n\n"
        f"{table(('place', 'CPU', 'accel'), [*lines, total])}"
    )


def build_text(built: dict[str, Any]) -> str:
    """How long the extension takes to compile."""
    rows = [(f"`{name}`", f"{seconds:.1f}") for name, seconds in built["slowest"]]
    return (
        f"## The build\n\n`python -m benchmarks.build`: the compiler takes {built['seconds']:.0f} s for {built['files']} files, "
        f"half of that with two jobs on two cores; the library has {built['library_bytes'] / 1e6:.1f} MB. The slowest files:\n\n"
        f"{table(('file', 'seconds'), rows)}"
    )


def conditions_text(runs: list[dict[str, Any]]) -> str:
    """What the figures mean nothing without."""
    loads = [run["load"] for run in runs if "workloads" in run]
    run = next(run for run in runs if "workloads" in run)
    return (
        f"{run['machine']}, {run['cores']} cores, {run['threads']} threads, torch {run['torch']}, "
        f"commit {run['commit']}, load {min(loads)} to {max(loads)} (a benchmark alone is {run['threads']}).\n"
    )


def text(runs: list[dict[str, Any]]) -> str:
    """The page."""
    counted, built = (next(run for run in runs if run["script"] == name) for name in ("instructions", "build"))
    parts = [
        HEAD,
        conditions_text(runs),
        f"## Targets\n\n{table(TARGET_COLUMNS, target_rows(runs))}",
        missed_text(runs),
        *(suite_text(runs, script) for script in suites(runs)),
        instructions_text(counted),
        build_text(built),
    ]
    return "\n".join(parts)


def draw(runs: list[dict[str, Any]], script: str, path: Path) -> None:
    """The ratios of a suite with their intervals, on a logarithmic axis: 1 is the CPU's time."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": script, "svg.fonttype": "none", "font.size": 8})
    from matplotlib import pyplot

    shown = [(m, p) for m, p in pairs(runs, script) if m["figure"] == "ratio" and m["unit"] == "us"]
    figure, axes = pyplot.subplots(figsize=(8, 0.6 + 0.28 * len(shown)), layout="constrained")
    for which, (colour, shift) in enumerate((("#1f77b4", -0.15), ("#ff7f0e", 0.15))):
        rows = [pair[which] for pair in shown]
        middles = [m["ratio"] for m in rows]
        errors = [
            [max(m["ratio"] - m["interval"][0], 0) for m in rows],
            [max(m["interval"][1] - m["ratio"], 0) for m in rows],
        ]
        places = [i + shift for i in range(len(rows))]
        label = ("default", "PASSIVE")[which]
        axes.errorbar(middles, places, xerr=errors, fmt="o", color=colour, markersize=4, capsize=2, label=label)
    for i, (m, _) in enumerate(shown):
        if m["target"]:
            limit = float(m["target"].split()[1])
            axes.plot([limit, limit], [i - 0.4, i + 0.4], color="#2ca02c", label="_")
    axes.set_yticks(range(len(shown)), [m["name"] for m, _ in shown])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.axvline(1, color="grey", linewidth=0.8)
    axes.set_xlabel("ratio (green: the target)")
    axes.legend()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def load() -> list[dict[str, Any]]:
    """The committed runs."""
    return [json.loads(line) for line in DATA.read_text().splitlines()]


def render(runs: list[dict[str, Any]]) -> None:
    """The page and its pictures."""
    PAGE.write_text(text(runs))
    for script in suites(runs):
        draw(runs, script, PICTURES / f"performance_{script}.svg")


def write(runs: list[dict[str, Any]]) -> None:
    """Counts instructions, then writes JSON, page and pictures."""
    from benchmarks import build, instructions

    runs = [*runs, instructions.record(), build.record()]
    DATA.write_text("".join(json.dumps(run) + "\n" for run in runs))
    render(runs)


if __name__ == "__main__":
    render(load())
