"""Writes docs/coverage.md: every operator of torch, the layer that runs it, its dtypes, whether it waits, its backward.

::

    python -m torch_accel.testing.coverage docs/coverage.md

Layers come from the dispatcher, formulas from derivatives.yaml; dtypes and waits are observed, by running samples of
``op_db`` forward and backward and looking at every operator below autograd.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .._compat import computed_kernel, derivative_names
from ..conformance.calls import DEVICE, call, gradients, place, samples_of, tensors
from ..conformance.waiting import WAITING
from .layers import LAYERS, base_name, operators
from .op_db import selected
from .waits import WaitWatch

#: what OpenReg, torch's own example of such a device, registers for PrivateUse1; everything else copies to the CPU
OPENREG = (
    *("empty", "empty_strided", "as_strided", "view", "_reshape_alias", "resize_", "set_"),
    *("_copy_from", "_copy_from_and_resize", "_local_scalar_dense", "abs", "quantize_per_tensor"),
    *("_fused_sdp_choice", "_scaled_dot_product_fused_attention_overrideable"),
    "_scaled_dot_product_fused_attention_overrideable_backward",
)

#: name of a group of dtypes -> its members, in the order of the page
_GROUPS = {
    "float": (torch.float16, torch.bfloat16, torch.float32, torch.float64),
    "complex": (torch.complex32, torch.complex64, torch.complex128),
    "int": (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    "bool": (torch.bool,),
}


@dataclass
class Seen:
    """What was observed of an operator."""

    dtypes: set[torch.dtype] = field(default_factory=set)
    waits: Counter[str] = field(default_factory=Counter)


class Observer(TorchDispatchMode):
    """Looks at every operator below autograd: its dtype, and who waits during the call."""

    def __init__(self, watch: WaitWatch) -> None:
        super().__init__()
        self.watch = watch
        self.seen: dict[str, Seen] = defaultdict(Seen)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(t.layout != torch.strided for t in tensors((args, kwargs))):
            return func(*args, **(kwargs or {}))  # the columns are about dense tensors
        with self.watch.block() as waits:
            result = func(*args, **(kwargs or {}))
        entry = self.seen[base_name(func.name())]
        entry.waits.update(waits.keys())
        entry.dtypes.update(t.dtype for t in tensors((args, result))[:1])
        return result


def observe(names: list[str], limit: int) -> dict[str, Seen]:
    """Runs samples of op_db: forward in every dtype, backward in float32."""
    with WaitWatch() as watch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        observer = Observer(watch)
        for op in selected(0, 1, names):
            for dtype in op.dtypes:
                for sample in samples_of(op, dtype, limit=limit):
                    arguments = place(op, sample, DEVICE)
                    _quietly(observer, call, op.op, arguments, DEVICE)
            if op.supports_autograd and torch.float32 in op.supported_backward_dtypes("cpu"):
                for sample in samples_of(op, torch.float32, requires_grad=True, limit=limit):
                    _quietly(observer, gradients, op, sample, DEVICE)
    return observer.seen


def _quietly(observer: Observer, run: Callable[..., Any], *args: Any) -> None:
    torch.accelerator.synchronize()
    with observer:
        try:
            run(*args)
        except Exception:  # samples that raise on the CPU too; the suite compares them
            return


def dtype_text(dtypes: Iterable[torch.dtype]) -> str:
    """Groups of dtypes that are there in full by the group's name, the others one by one."""
    dtypes = set(dtypes)
    words = []
    for group, members in _GROUPS.items():
        found = [d for d in members if d in dtypes]
        words += [group] if len(found) == len(members) else [str(d).removeprefix("torch.") for d in found]
    words += sorted(str(d).removeprefix("torch.") for d in dtypes if not any(d in m for m in _GROUPS.values()))
    return ", ".join(words)


def layer_text(overloads: dict[str, str]) -> str:
    """The layers of an operator's overloads: one word if they agree, else each with its number."""
    counts = Counter(overloads.values())
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{layer} {counts[layer]}" for layer in LAYERS if layer in counts)


def backward_text(name: str, overloads: Iterable[str], formulas: set[str]) -> str:
    """``formula``, ``composite`` (differentiated through what it is made of) or nothing."""
    if name.rstrip("_") in formulas or name in formulas:
        return "formula"
    through = any("[math kernel]" in computed_kernel(o, "AutogradPrivateUse1") for o in overloads)
    return "composite" if through else ""


def layer_totals(table: dict[str, dict[str, str]]) -> dict[str, int]:
    """Layer -> number of overloads."""
    counts = Counter(layer for overloads in table.values() for layer in overloads.values())
    return {layer: counts[layer] for layer in LAYERS}


def _table(head: str, rows: Iterable[Iterable[object]]) -> list[str]:
    lines = [head, "|" + "---|" * (head.count("|") - 1)]
    return lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]


def operator_rows(table: dict[str, dict[str, str]], seen: dict[str, Seen]) -> Iterable[tuple[str, str, str, str, str]]:
    """(operator, layer, dtypes, waits, backward) of every operator that has a kernel."""
    formulas = derivative_names()
    for name, overloads in table.items():
        if set(overloads.values()) == {"error"}:
            continue
        entry = seen.get(name)
        waits = "" if entry is None else ", ".join(sorted(entry.waits)) or "no"
        dtypes = "" if entry is None else dtype_text(entry.dtypes)
        yield f"`{name}`", layer_text(overloads), dtypes, waits, backward_text(name, overloads, formulas)


def fixed_sections(table: dict[str, dict[str, str]]) -> list[str]:
    """The part of the page that needs no observation."""
    totals = layer_totals(table)
    own = {
        name
        for name, overloads in table.items()
        if {"generated", "shape function", "hand-written"} & set(overloads.values())
    }
    lines = ["## Layers", ""]
    lines += _table("| Layer | Overloads | What it is |", ((k, totals[k], text) for k, text in LAYERS.items()))
    lines += ["", "## Operators that wait", ""]
    lines += ["Operators that may make the host wait, and why. Everything else is queued, or falls back.", ""]
    lines += _table("| Operator | Why |", ((f"`{name}`", reason) for name, reason in sorted(WAITING.items())))
    lines += ["", "## Compared with OpenReg", ""]
    lines += [
        "OpenReg, torch's own example of a device behind PrivateUse1, registers a minimum and copies the operands of "
        "everything else to the CPU and back, on the caller's thread.",
        "",
    ]
    lines += _table(
        "| | OpenReg | accel |",
        [
            ("operators with kernels of the device", len(OPENREG), len(own)),
            ("of these, queued on a stream", 0, len(own - WAITING.keys())),
            ("all others", "copied to the CPU and back", "run on device memory, nothing is copied"),
        ],
    )
    return lines


def page(table: dict[str, dict[str, str]], seen: dict[str, Seen]) -> str:
    """The whole page."""
    rows = list(operator_rows(table, seen))
    free = sum(not entry.waits for entry in seen.values())
    lines = [
        "# Coverage",
        "",
        f"Every operator that torch {torch.__version__.split('+')[0]} describes for backends. Written by "
        "`python -m torch_accel.testing.coverage docs/coverage.md`; do not edit.",
        "",
        f"{len(rows)} operators have a kernel. Samples of `op_db`, forward and backward, reach {len(seen)} of them below "
        f"autograd, and {free} of these never make the host wait.",
        "",
        *fixed_sections(table),
        "",
        "## Operators",
        "",
        "Dtypes and waits are observed; empty: no sample of `op_db` reaches the operator below autograd. "
        "`float`, `complex`, `int` and `bool` stand for all dtypes of the kind. Waits: the callers that waited. "
        "Backward: a formula of torch's, or composite: through the operators that it is made of.",
        "",
        *_table("| Operator | Layer | Dtypes | Waits | Backward |", rows),
        "",
        "## Without a kernel",
        "",
        "Operators of other processors and of other layouts; called on accel they raise an error that names it.",
        "",
        ", ".join(f"`{name}`" for name, overloads in table.items() if set(overloads.values()) == {"error"}) + ".",
        "",
    ]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Writes the page."""
    parser = argparse.ArgumentParser(prog="python -m torch_accel.testing.coverage", description=__doc__.split("\n")[0])
    parser.add_argument("path", help="the page to write")
    parser.add_argument("--samples", type=int, default=4, help="samples per operator and dtype")
    parser.add_argument("--op", action="append", default=[], help="observe only this operator of op_db (repeatable)")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    Path(options.path).write_text(page(operators(), observe(options.op, options.samples)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
