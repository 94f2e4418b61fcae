"""What the compiler makes of the measured Triton kernels for two fixed instruction sets: counted, not timed, on any x86-64 host.

    python -m benchmarks.triton_gates            # the table
    python -m benchmarks.triton_gates --check    # fail where a count exceeds its baseline by more than 5 %
    python -m benchmarks.triton_gates --write    # make the counts the baseline, benchmarks/triton_gates.json

``instructions`` are those of the innermost loops, ``stack`` the ones among them that touch the stack (spills, and slots of reductions that
are no registers), ``gathers`` the gathers and scatters of the whole kernel, ``bytes`` the size of its code.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks import triton_kernels as kernels
from torch_accel.triton import codegen, frontend
from torch_accel.triton.codegen import llvm

BASELINE = Path(__file__).with_suffix(".json")
ALLOWED = 1.05
ISAS = ("x86-64-v3", "x86-64-v4")
COMMAND = "python -m benchmarks.triton_gates --write"

Counts = dict[str, int]
Table = dict[str, dict[str, Counts]]  # instruction set -> kernel -> counts

# Kernel, types by parameter (":16": as a launch on aligned tensors of such sizes finds it), constants.
KERNELS = {
    "add": (kernels._add, "x=*fp32 y=*fp32 out=*fp32 n=i32", {"B": 1024}),
    "softmax": (kernels._softmax, "x=*fp32 out=*fp32 columns=i32", {"B": 1024}),
    "layer norm": (kernels._layer_norm, "x=*fp32 w=*fp32 b=*fp32 out=*fp32 columns=i32", {"B": 1024}),
    "gelu": (kernels._gelu, "x=*fp32 out=*fp32 n=i32", {"B": 1024}),
    "matmul": (kernels._matmul, "a=*fp32 b=*fp32 c=*fp32 M=i32 N=i32 K=i32", {"BM": 128, "BN": 128, "BK": 32}),
    "flash attention": (
        kernels._attention, "q=*fp32 k=*fp32 v=*fp32 out=*fp32 S=i32 scale=fp32", {"BM": 64, "BN": 32, "D": 64},
    ),
}  # fmt: skip


def measured(isa: str) -> dict[str, Counts]:
    """The counts of every kernel for an instruction set; pointers and integers are multiples of 16, as in the benchmarks."""
    found = {}
    for name, (kernel, signature, constants) in KERNELS.items():
        known = dict(word.split("=") for word in signature.split())
        types = {parameter: known.get(parameter, "constexpr") for parameter in kernel.arg_names}
        sixteen = {
            (at,): [["tt.divisibility", 16]]
            for at, type in enumerate(types.values())
            if type.startswith("*") or type == "i32"
        }
        module = frontend.tile_ir(kernel, types, constants, attributes=sixteen)
        target = codegen.target(isa)
        compiled = codegen.compile_module(module, name=kernel.fn.__name__, target=target)
        found[name] = counts(llvm.assembly(compiled.llvm_text, target), compiled.llvm_text, compiled.object)
    return found


def counts(assembly: str, llvm_text: str, object: bytes) -> Counts:
    """Of one object, its text and its IR."""
    loops = list(innermost(assembly))
    return {
        "instructions": sum(map(len, loops)),
        "stack": sum("(%rsp" in line or "(%rbp" in line for loop in loops for line in loop),
        "gathers": len(re.findall(r"call .*@llvm\.masked\.(?:gather|scatter)", llvm_text)),
        "bytes": llvm.code_size(object),
    }


def innermost(assembly: str) -> Iterator[list[str]]:
    """The instructions of each innermost loop: from a label to the last jump back to it, with no such stretch inside."""
    lines = [line.split("#")[0].strip() for line in assembly.splitlines()]
    labels = {line[:-1]: number for number, line in enumerate(lines) if line.endswith(":")}
    ends: dict[int, int] = {}
    for number, line in enumerate(lines):
        jump = re.fullmatch(r"j\w+\s+(\S+)", line)
        if jump and labels.get(jump[1], number) < number:
            ends[labels[jump[1]]] = number
    for start, end in ends.items():
        if not any(start <= other and last <= end for other, last in ends.items() if other != start):
            yield [
                line for line in lines[start : end + 1] if line and not line.endswith(":") and not line.startswith(".")
            ]


def worse(found: Table, baseline: Table) -> list[tuple[str, str, str, int, int]]:
    """Instruction set, kernel, count, baseline and value of what exceeds its baseline by more than 5 %; what has none counts as 0."""
    return [
        (isa, kernel, what, before, now)
        for isa, rows in found.items()
        for kernel, row in rows.items()
        for what, now in row.items()
        if now > ALLOWED * (before := baseline.get(isa, {}).get(kernel, {}).get(what, 0))
    ]


def text(rows: list[tuple[str, str, str, int, int]]) -> str:
    """What is worse, as a table, and what to do."""
    head = ("target", "kernel", "count", "baseline", "now")
    lines = ["{:<10} {:<16} {:<13} {:>9} {:>9}".format(*row) for row in (head, *rows)]
    return "\n".join(
        ["more than 5 % above the baseline:", *lines, f"If that is meant, make it the baseline: {COMMAND}"]
    )


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--check", action="store_true", help="fail where a count exceeds its baseline by more than 5 %%")
    modes.add_argument("--write", action="store_true", help="make the counts the baseline")
    given = parser.parse_args()
    found = {isa: measured(isa) for isa in ISAS}
    for isa, rows in found.items():
        for kernel, row in rows.items():
            print(f"{isa:<10} {kernel:<16} " + ", ".join(f"{number} {what}" for what, number in row.items()))
    if given.write:
        BASELINE.write_text(json.dumps(found, indent=1) + "\n")
    if given.check and (rows := worse(found, json.loads(BASELINE.read_text()))):
        sys.exit(text(rows))


if __name__ == "__main__":
    main()
