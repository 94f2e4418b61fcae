"""What a call costs the host, in instructions: CPU tensors compute meanwhile, accel's only enqueue.

    python -m benchmarks.instructions [--check | --write]

Counted by valgrind's callgrind, so that a busy machine does not matter; the device's stream is held, so that only the
host runs. ``--write`` makes the ratios the baseline in instructions.json, ``--check`` fails where one exceeds its
baseline by more than 5 %. Ratios, not counts: these depend on the compiler and the interpreter.
"""

from __future__ import annotations

import argparse
import gc
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from benchmarks import callgrind
from benchmarks.harness import Work, conditions, tensors, terminal
from torch_accel import _compat
from torch_accel.testing import hold_stream

BASELINE = Path(__file__).with_suffix(".json")
ALLOWED = 1.05
CALLS = 40
WARMUP = 60
F = torch.nn.functional


def on(function: Callable[..., object], *shapes: tuple[int, ...], grad: bool = False) -> Callable[[str], Work]:
    """The function's call on tensors of these shapes."""

    def make(device: str) -> Work:
        operands = [tensors(device, *shape, count=1)[0].requires_grad_(grad) for shape in shapes]
        return lambda: function(*operands)

    return make


def step(device: str) -> Work:
    """Forward, backward and fused AdamW of a perceptron: the autograd engine's thread works too."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    (x,) = tensors(device, 4, 8, count=1)

    def work() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return work


SMALL = (8, 8)
ADD = "x + y"  # of which the page says where the instructions go
STATEMENTS: dict[str, Callable[[str], Work]] = {
    "x.add_(y)": on(torch.Tensor.add_, SMALL, SMALL),
    "x + y": on(torch.add, SMALL, SMALL),
    "x + 1": on(lambda x: x + 1, SMALL),
    "x.sum(1)": on(lambda x: x.sum(1), SMALL),
    "x @ y": on(torch.mm, SMALL, SMALL),
    "linear": on(F.linear, SMALL, SMALL, (8,)),
    "softmax": on(lambda x: x.softmax(1), SMALL),
    "layer_norm": on(lambda x: F.layer_norm(x, (8,)), SMALL),
    "gelu": on(F.gelu, SMALL),
    "cat": on(lambda x, y: torch.cat([x, y]), SMALL, SMALL),
    "x.copy_(y)": on(torch.Tensor.copy_, SMALL, SMALL),
    "x[1:].t()": on(lambda x: x[1:].t(), SMALL),
    "empty_strided": lambda device: lambda: torch.empty_strided(SMALL, (8, 1), device=device),
    "x * y, requires grad": on(torch.mul, SMALL, SMALL, grad=True),
    "training step": step,
}


def count() -> None:
    """Runs under callgrind: dumps the counters after each statement, in order, CPU before accel."""
    torch.set_num_threads(1)
    toggle, dump = _compat.valgrind_counters()
    works = [make(device) for make in STATEMENTS.values() for device in ("cpu", "accel")]
    for work in works:
        for _ in range(WARMUP):
            work()
        torch.accel.synchronize()
        gc.collect()
        gc.disable()
        with hold_stream():
            work()
            toggle()
            for _ in range(CALLS):
                work()
            dump()
        torch.accel.synchronize()


@contextmanager
def files() -> Iterator[list[Path]]:
    """What callgrind wrote for each statement on the CPU and on accel, in order.

    Raises:
        RuntimeError: valgrind is not installed, or failed.
    """
    if shutil.which("valgrind") is None:
        raise RuntimeError("valgrind is not installed: it counts the instructions; install your system's package")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "callgrind.out")
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--collect-atstart=no"]
        done = subprocess.run(
            [*command, sys.executable, "-m", "benchmarks.instructions", "--inside"], capture_output=True, text=True
        )
        if done.returncode != 0:
            raise RuntimeError(f"valgrind ended with {done.returncode}:\n{done.stderr}")
        yield [Path(f"{out}.{i + 1}") for i in range(2 * len(STATEMENTS))]


def record() -> dict[str, Any]:
    """For the page: instructions of a call on the CPU and on accel, and those of ADD by place."""
    with files() as written:
        totals = [callgrind.total(path) // CALLS for path in written]
        where = 2 * list(STATEMENTS).index(ADD)
        cpu, accel = (callgrind.by_place(callgrind.spent(path)) for path in written[where : where + 2])
    return {
        "script": "instructions",
        "counts": {name: totals[2 * i : 2 * i + 2] for i, name in enumerate(STATEMENTS)},
        "add": [[place, cpu[place] // CALLS, accel[place] // CALLS] for place in cpu],
        **facts(),
    }


def facts() -> dict[str, Any]:
    """The conditions that matter to a count."""
    return {name: value for name, value in conditions(CALLS).items() if name not in ("rounds", "load")}


def worse(ratios: dict[str, float], baseline: dict[str, float]) -> list[str]:
    """The statements that exceed their baseline by more than 5 %; one that has none does."""
    return [name for name, ratio in ratios.items() if ratio > ALLOWED * baseline.get(name, 0)]


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--check", action="store_true", help="fail where a ratio exceeds its baseline by more than 5 %%")
    modes.add_argument("--write", action="store_true", help="make the ratios the baseline")
    modes.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        count()
        return
    found = record()["counts"]
    known = json.loads(BASELINE.read_text())["ratios"] if BASELINE.exists() else {}
    table = Table("statement", "CPU", "accel", "accel/CPU", "baseline")
    for name, (cpu, accel) in found.items():
        table.add_row(name, f"{cpu:,}", f"{accel:,}", f"{accel / cpu:.2f}", f"{known.get(name, float('nan')):.2f}")
    console = terminal()
    console.print(table)
    console.print(", ".join(f"{name} {value}" for name, value in facts().items()))
    ratios = {name: round(accel / cpu, 3) for name, (cpu, accel) in found.items()}
    if options.write:
        BASELINE.write_text(json.dumps({"ratios": ratios, **facts()}, indent=2) + "\n")
    if options.check and (names := worse(ratios, known)):
        sys.exit(f"more than 5 % above the baseline: {', '.join(names)}")


if __name__ == "__main__":
    main()
