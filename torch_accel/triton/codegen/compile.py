"""From a kernel's tile IR to an object: the passes, then a function for each of the machine IR's, then LLVM."""

from __future__ import annotations

from dataclasses import dataclass

from .. import passes
from ..ir import printer
from ..ir.core import Location, Operation
from ..ir.types import Ptr, Scalar
from ..machine.ops import MACHINE, attribute
from . import context, control, llvm, outline
from .context import field
from .emit import Function, Module
from .formats import base
from .memory import from_memory, memory_base
from .scalars import size
from .values import Code, Lane, elem_of, parameter


@dataclass(frozen=True)
class CompiledKernel:
    """``object`` has the function ``symbol`` (an ``accelGridFunction``), which needs ``sram`` bytes of scratch memory. A fault record's
    ``site`` is an index into ``locations``."""

    object: bytes
    symbol: str
    sram: int
    locations: list[Location]
    machine_text: str
    llvm_text: str


def compile_module(module: Operation, *, name: str, target: llvm.Target | None = None) -> CompiledKernel:
    """The object of the kernel ``name`` of a verified module of the tile IR, for a target (the host's if None).

    Raises IRError with the kernel's line for what has no code, Triton's OutOfResources when SRAM is too small.
    """
    return compile_machine(passes.machine_ir(module), name=name, target=target)


def compile_machine(module: Operation, *, name: str, target: llvm.Target | None = None) -> CompiledKernel:
    """``compile_module`` of the machine IR."""
    made, locations = Module(target or llvm.target()), list[Location]()
    functions = {attribute(op, "name"): op for op in module.regions[0].block.operations}
    for function in functions.values():
        _function(made, function, locations)
    _entry(made, functions[name], name)
    compiled = llvm.compile_text(made.text(), made.target)
    return CompiledKernel(
        compiled.object,
        name,
        attribute(functions[name], "sram"),
        locations,
        printer.text(module, operators=MACHINE),
        compiled.llvm_text,
    )


def _function(module: Module, op: Operation, locations: list[Location]) -> None:
    """i32 (context, frame, arguments, places of results): 0, or a status of ``control`` when the program is to stop."""
    block, returns = op.regions[0].block, list(attribute(op, "returns"))
    arguments = [(parameter(value.type), f"%a{index}") for index, value in enumerate(block.arguments)]
    results = [("ptr", f"%r{index}") for index in range(len(returns))]
    head = [("ptr", "%context"), ("ptr", "%frame")]
    name = control.inner_name(attribute(op, "name"))
    function = Function(module, name, [*head, *arguments, *results], "i32", "internal")
    code = Code(module, function, locations)
    code.frame = attribute(op, "frame")
    code.divided = sum(1 for _ in outline.nests(block)) >= outline.MANY
    context.read(function)
    end = code.block(block, [Lane(text) for _, text in arguments])
    control.returns(code, end, [place for _, place in results])
    function.finish()


def _entry(module: Module, op: Operation, name: str) -> None:
    """i32 (context, arguments packed at their natural alignment)."""
    function = Function(module, f'"{name}"', [("ptr", "%context"), ("ptr", "%arguments")], "i32")
    e = Code(module, function, []).lanes(False)
    elems, given = [elem_of(value.type) for value in op.regions[0].block.arguments], []
    for elem, at in zip(elems, packed(elems)):
        place = function.op(f"getelementptr i8, ptr %arguments, i64 {at}")
        read = function.op(f"load {memory_base(elem)}, ptr {place}, align {size(elem)}")
        given.append(f"{base(elem)} {from_memory(e, elem, read)}")
    frame = function.op(f"load ptr, ptr {field(function, 'sram')}")
    head = ", ".join(["ptr %context", f"ptr {frame}", *given])
    status = function.op(f"call i32 @{control.inner_name(name)}({head})")
    wrong = function.op(f"icmp eq i32 {status}, {control.FAULT}")  # a program that was aborted has no fault of its own
    function.do(f"ret i32 {function.op(f'zext i1 {wrong} to i32')}")
    function.finish()


def packed(types: list[Scalar | Ptr]) -> list[int]:
    """Where each of a kernel's arguments lies, and the bytes of all."""
    at, places = 0, []
    for elem in types:
        at = -(-at // size(elem)) * size(elem)
        places.append(at)
        at += size(elem)
    return [*places, at]
