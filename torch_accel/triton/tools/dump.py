"""``accel-triton dump``: what a kernel of a file becomes, at each level of the compiler, with no device."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterator
from typing import Any

from .. import frontend, passes
from ..analysis import cost
from ..ir import printer, reader
from ..ir.core import IRError
from ..ir.ops import OPERATORS
from ..machine.ops import MACHINE
from ..machine.verify import verify as verify_machine
from . import kernels

STAGES = ("ttir", "tile", "machine", "cost", "llvm", "asm")
TARGETS = ("host", "x86-64-v3", "x86-64-v4")
EXAMPLE = """\
example:
  accel-triton dump add.py:add --signature 'x=*fp32:16' 'out=*fp32:16' n=i32 --constexpr B=1024 --stage machine

A type is Triton's: fp32, i64, *bf16 (a pointer). ":16" behind it says that 16 divides the address or the number, as
Triton finds out at a launch. A launch with an integer that is 1 makes it a constant: --constexpr n=1.
"""


def sections(
    kernel: Any, given: tuple[Any, Any, Any], stages: Collection[str], *, target: str = "host", each: bool = False, debug: bool = False
) -> Iterator[tuple[str, str]]:  # fmt: skip
    """Title and text of the stages asked for, in the compiler's order, which runs no further than the last of them.

    ``given`` is what ``kernels.parameters`` gives; ``each`` shows the tile and the machine IR after every pass. Raises what the compiler
    raises: Triton's CompilationError and OutOfResources, IRError.
    """
    left, name = set(stages), kernel.fn.__name__

    def wanted(stage: str) -> bool:
        here = stage in left
        left.discard(stage)
        return here

    options = frontend.Options(debug=debug)
    module = frontend.module(kernel, *given, options=options)
    if wanted("ttir"):
        yield "ttir", module.str_nodebug()
    if not left:
        return
    lowered = frontend.lowered(reader.read(frontend.generic(module)), strict=options.strict)
    tile = wanted("tile")
    if tile:
        yield "tile", printer.text(lowered)
    if not left and not each:
        return
    machine = wanted("machine")
    for step, made, of_machine in passes.steps(lowered):
        if each and (machine if of_machine else tile):
            level, operators = ("machine", MACHINE) if of_machine else ("tile", OPERATORS)
            yield f"{level}, after {step}", printer.text(made, operators=operators)
    verify_machine(made)
    if machine and not each:
        yield "machine", printer.text(made, operators=MACHINE)
    if wanted("cost"):
        yield "cost", printer.text(cost.function(made, name), operators=MACHINE)
    if not left:
        return
    from ..codegen import compile, llvm

    compiled = compile.compile_machine(made, name=name, target=llvm.target(target))
    if wanted("llvm"):
        yield "llvm", compiled.llvm_text
    if wanted("asm"):
        yield "asm", llvm.assembly(compiled.llvm_text, llvm.target(target))


def add_to(commands: Any) -> None:
    """Adds ``dump`` to the commands of a parser."""
    parser = commands.add_parser(
        "dump",
        help="show a kernel at each level of the compiler",
        description="Shows a kernel at each level of the compiler. No device is used, and the kernel is not run.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kernel", metavar="FILE.py[:FUNCTION]", help="a function under @triton.jit")
    words = {"nargs": "+", "default": [], "action": "extend"}
    parser.add_argument("--signature", metavar="NAME=TYPE", help="types of the parameters that a launch gives", **words)
    parser.add_argument("--constexpr", metavar="NAME=VALUE", help="values of the constexpr parameters", **words)
    parser.add_argument("--stage", choices=(*STAGES, "all"), default="all", help="what to show (default: all)")
    parser.add_argument("--target", choices=TARGETS, default="host", help="instruction set (default: host)")
    parser.add_argument("--after-each-pass", action="store_true", help="show the tile and machine IR after every pass")
    parser.add_argument("--debug", action="store_true", help="keep device_assert, as debug=True at a launch does")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Prints what the arguments ask for. 1 and the compiler's words where it refuses the kernel, 2 where the arguments do not fit."""
    try:
        kernel = kernels.load(given.kernel)
        known = kernels.parameters(kernel, given.signature, given.constexpr)
    except kernels.UsageError as error:
        print(error, file=sys.stderr)
        return 2
    from triton.compiler.errors import CompilationError
    from triton.runtime.errors import OutOfResources

    stages = STAGES if given.stage == "all" else (given.stage,)
    more = {"target": given.target, "each": given.after_each_pass, "debug": given.debug}
    alone = len(stages) == 1 and not given.after_each_pass  # a text that other tools can read
    try:
        for title, text in sections(kernel, known, stages, **more):
            print(text.rstrip() if alone else f"==== {title} ====\n{text.rstrip()}\n")
    except (CompilationError, IRError, OutOfResources) as error:
        print(error, file=sys.stderr)
        return 1
    return 0
