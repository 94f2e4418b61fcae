"""Figures over torch's operator database (``op_db``): right, bit-equal, without a fallback, without a host wait.

::

    python -m torch_accel.testing.op_db --samples 3

The denominator is all of ``op_db``: an operator without a usable sample, or one that cannot run here, counts as a
failure. Values are compared under ``ACCEL_RNG=cpu``, so random operators count too; waits are counted under the device's
own generator, on a held stream, in a second process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch

from .._native import _C
from ..conformance import checks
from ..conformance.calls import DEVICE, call, name_of, place, samples_of
from ..conformance.compare import Tally
from .waits import WaitWatch

#: the dtypes that the figures count
DTYPES = (torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.complex64)


def selected(shard: int, shards: int, names: list[str]) -> Iterator[Any]:
    """The operators of ``op_db`` that belong to a shard, in a fixed order."""
    from ..conformance.torch_internals import op_db

    for index, op in enumerate(sorted(op_db, key=lambda o: (o.name, o.variant_test_name))):
        if index % shards == shard and (not names or name_of(op) in names):
            yield op


def _fallbacks() -> int:
    return sum(times for _, times in _C._fallback_counts())


def compare_operator(op: Any, dtype: torch.dtype, limit: int | None) -> tuple[Tally, int]:
    """(the comparisons, the number of samples that ran without a fallback)."""
    tally, queued = Tally(), 0
    try:
        samples = samples_of(op, dtype, limit=limit)
    except Exception as error:  # a broken sample generator is a failure like any other
        tally.fail("-", error)
        return tally, queued
    for sample in samples:
        before = _fallbacks()
        checks.forward_samples(op, [sample], tally)
        queued += _fallbacks() == before
    return tally, queued


def waits_of_operator(
    op: Any, dtype: torch.dtype, limit: int | None, watch: WaitWatch
) -> tuple[int, int, Counter[str]]:
    """(samples, those without a host wait, how many samples waited in each caller)."""
    count = free = 0
    callers: Counter[str] = Counter()
    for sample in samples_of(op, dtype, limit=limit):
        arguments = place(op, sample, DEVICE)
        torch.accelerator.synchronize()
        with warnings.catch_warnings(), watch.block() as waits:
            warnings.simplefilter("ignore")
            try:
                result = call(op.op, arguments, DEVICE)
            except Exception as error:  # an error of the CPU's too, or counted as a failure by the comparison
                result = error
        del result
        count += 1
        free += not waits
        callers.update(waits.keys())
    return count, free, callers


def _compare(options: argparse.Namespace) -> dict[str, Any]:
    shard, shards = map(int, options.shard.split("/"))
    figures: dict[str, Any] = {"operators": 0, "samples": 0, "exact": 0, "queued": 0, "failures": []}
    for op in selected(shard, shards, options.op):
        figures["operators"] += 1
        for dtype in (dtype for dtype in DTYPES if dtype in op.dtypes):
            tally, queued = compare_operator(op, dtype, options.samples)
            figures["samples"] += tally.samples
            figures["exact"] += tally.exact
            figures["queued"] += queued
            for reason in tally.failures:
                figures["failures"].append({"op": name_of(op), "dtype": str(dtype), "reason": reason})
    return figures


def _waits(options: argparse.Namespace) -> dict[str, Any]:
    shard, shards = map(int, options.shard.split("/"))
    figures: dict[str, Any] = {"watched": 0, "without_wait": 0, "waiting": {}}
    with WaitWatch() as watch:
        for op in selected(shard, shards, options.op):
            callers: Counter[str] = Counter()
            for dtype in (dtype for dtype in DTYPES if dtype in op.dtypes):
                count, free, found = waits_of_operator(op, dtype, options.samples, watch)
                figures["watched"] += count
                figures["without_wait"] += free
                callers += found
            if callers:
                figures["waiting"][name_of(op)] = dict(callers)
    return figures


def _waits_elsewhere(arguments: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "waits.json")
        command = [sys.executable, "-m", "torch_accel.testing.op_db", *arguments, "--part", "waits", "--json", path]
        subprocess.run(command, env={**os.environ, "ACCEL_RNG": "philox"}, check=True, stdout=subprocess.DEVNULL)
        with open(path) as file:
            return json.load(file)


def _report(figures: dict[str, Any]) -> None:
    if "operators" in figures:
        failures, run = figures["failures"], figures["samples"]
        right = figures["operators"] - len({failure["op"] for failure in failures})
        print(
            f"operators {right}/{figures['operators']}, samples {run - len(failures)}/{run}, "
            f"bit-equal {figures['exact']}/{run}, without a fallback {figures['queued']}/{run}"
        )
        for failure in failures:
            print(f"  {failure['op']} {failure['dtype']} {failure['reason']}")
    if "watched" in figures:
        print(f"without a host wait {figures['without_wait']}/{figures['watched']}")
        for name, callers in sorted(figures["waiting"].items()):
            print(f"  {name}: {', '.join(f'{caller} x{times}' for caller, times in callers.items())}")


def main(argv: list[str] | None = None) -> int:
    """The program; returns the number of operators that differ."""
    parser = argparse.ArgumentParser(
        prog="python -m torch_accel.testing.op_db",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--samples", type=int, help="samples per operator and dtype (default: all)")
    parser.add_argument("--shard", default="0/1", help="K/N: every N-th operator, from the K-th")
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--op", action="append", default=[], help="only this operator (repeatable)")
    parser.add_argument("--part", choices=["all", "compare", "waits"], default="all", help="which of the two passes")
    options = parser.parse_args(argv)
    # The CPU's numbers are drawn while the caller waits.
    os.environ.setdefault("ACCEL_RNG", "philox" if options.part == "waits" else "cpu")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    figures: dict[str, Any] = {}
    if options.part != "waits":
        figures |= _compare(options)
    if options.part == "waits":
        figures |= _waits(options)
    elif options.part == "all":
        figures |= _waits_elsewhere(sys.argv[1:] if argv is None else argv)
    _report(figures)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(figures, file, indent=1)
    return len({failure["op"] for failure in figures.get("failures", [])})


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
