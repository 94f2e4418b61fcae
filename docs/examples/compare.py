"""Prints one table of two reports of digits.py, and fails unless they agree and the network learned.

python docs/examples/compare.py accel.json cpu.json
"""

import argparse
import json
import sys
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

LEAST_ACCURACY = 0.97


def table(accel: dict, cpu: dict) -> Table:
    """Epoch by epoch, then the totals, then what fell back."""
    names = accel["device"], cpu["device"]
    threads = " and ".join(sorted({str(r["threads"]) for r in (accel, cpu)}))
    out = Table(title=f"digits, {threads} threads", box=box.SIMPLE_HEAD)
    out.add_column("epoch", justify="right")
    for what in ("loss", "accuracy", "seconds"):
        for name in names:
            out.add_column(f"{what}\n{name}", justify="right")
        if what == "loss":
            out.add_column("bit-equal")
    for i, (a, c) in enumerate(zip(accel["epochs"], cpu["epochs"], strict=True), 1):
        out.add_row(
            str(i),
            *(f"{e['loss']:.8f}" for e in (a, c)),
            "yes" if a["loss"] == c["loss"] else "NO",
            *(f"{e['accuracy']:.1%}" for e in (a, c)),
            *(f"{e['seconds']:.2f}" for e in (a, c)),
        )
    seconds = [sum(e["seconds"] for e in r["epochs"]) for r in (accel, cpu)]
    out.add_section()
    equal = "yes" if losses(accel) == losses(cpu) else "NO"
    out.add_row("all", "", "", equal, "", "", *(f"{s:.2f}" for s in seconds))
    fallback = sorted(accel["fallback"].items(), key=lambda item: (-item[1], item[0]))
    listed = ", ".join(f"{name} {count}" for name, count in fallback) or "none"
    out.caption = (
        f"time {names[0]}/{names[1]}: {seconds[0] / seconds[1]:.2f}\n"
        f"peak device memory: {accel['peak_memory'] / 2**20:.1f} MiB\n"
        f"operators that fell back, with calls ({len(fallback)}): {listed}"
    )
    out.caption_justify = "left"
    return out


def losses(report: dict) -> list[float]:
    return [epoch["loss"] for epoch in report["epochs"]]


def complaints(accel: dict, cpu: dict) -> list[str]:
    """What is wrong, a sentence each; empty if the device computes what the CPU does and the network learned."""
    found = []
    if losses(accel) != losses(cpu):
        found.append("The losses differ: run both with ACCEL_RNG=cpu and the same OMP_NUM_THREADS.")
    for report in (accel, cpu):
        reached = report["epochs"][-1]["accuracy"]
        if reached < LEAST_ACCURACY:
            found.append(f"On {report['device']} the network reached {reached:.1%}, less than {LEAST_ACCURACY:.0%}.")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("accel", type=Path, help="report of a run with --device accel")
    parser.add_argument("cpu", type=Path, help="report of a run with --device cpu")
    args = parser.parse_args()
    accel, cpu = (json.loads(path.read_text()) for path in (args.accel, args.cpu))
    Console(width=None if sys.stdout.isatty() else 110).print(table(accel, cpu))
    found = complaints(accel, cpu)
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
