"""From a kernel's tile IR to an object: the passes, then a function for each of the machine IR's, then LLVM."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from .. import passes
from ..analysis import cost as analysis
from ..analysis.origins import origins
from ..ir import printer
from ..ir.core import Location, Operation
from ..ir.types import Ptr, Scalar
from ..machine.ops import MACHINE, attribute
from . import context, control, llvm, outline
from .bounds import Argument, Bounds
from .context import field
from .emit import Function, Module
from .formats import base
from .memory import from_memory, memory_base
from .scalars import size
from .values import Code, Lane, elem_of, parameter


@dataclass(frozen=True)
class CompiledKernel:
    """``object`` has the function ``symbol`` (an ``accelGridFunction``), which needs ``sram`` bytes of scratch memory, and the function
    ``cost_symbol``: void (arguments as the kernel's, u32 grid[3], i64 record[len(COUNTERS)]), which fills the record as ``analysis.cost``
    says. A fault record's ``site`` is an index into ``locations``."""

    object: bytes
    symbol: str
    sram: int
    locations: list[Location]
    machine_text: str
    llvm_text: str

    @property
    def cost_symbol(self) -> str:
        """Of the function that says what a launch costs."""
        return f"{self.symbol}.cost"


def compile_module(
    module: Operation, *, name: str, target: llvm.Target | None = None, bounds: bool = False
) -> CompiledKernel:
    """The object of the kernel ``name`` of a verified module of the tile IR, for a target (the host's if None).

    With ``bounds`` a program ends with a fault before an access outside of its arguments' memory; behind the arguments, aligned
    to 8, lie then the memory's first address and its bytes (u64) for each pointer among them.
    Raises IRError with the kernel's line for what has no code, Triton's OutOfResources when SRAM is too small.
    """
    return compile_machine(passes.machine_ir(module), name=name, target=target, bounds=bounds)


def compile_machine(
    module: Operation, *, name: str, target: llvm.Target | None = None, bounds: bool = False
) -> CompiledKernel:
    """``compile_module`` of the machine IR."""
    made, locations = Module(target or llvm.target()), list[Location]()
    functions = {attribute(op, "name"): op for op in module.regions[0].block.operations}
    known = _bounds(module, functions[name], name) if bounds else None
    for function in functions.values():
        _function(made, function, locations, known)
    _entry(made, functions[name], name)
    (cost,) = analysis.function(module, name).regions[0].block.operations
    _function(made, cost, locations, None)
    _cost_entry(made, cost)
    compiled = llvm.compile_text(made.text(), made.target)
    return CompiledKernel(
        compiled.object,
        name,
        attribute(functions[name], "sram"),
        locations,
        printer.text(module, operators=MACHINE),
        compiled.llvm_text,
    )


def _bounds(module: Operation, op: Operation, name: str) -> Bounds:
    """Where the kernel's arguments have their addresses and ranges."""
    values = op.regions[0].block.arguments
    *places, end = packed([elem_of(value.type) for value in values])
    pointers = [at for at, value in enumerate(values) if isinstance(value.type, Ptr)]
    arguments = {
        at: Argument(values[at].name or f"argument {at}", places[at], -(-end // 8) * 8 + 16 * number)
        for number, at in enumerate(pointers)
    }
    return Bounds(origins(module, name), arguments)


def _function(module: Module, op: Operation, locations: list[Location], bounds: Bounds | None) -> None:
    """i32 (context, kernel's arguments, frame, arguments, places of results): 0, or a status of ``control`` when it is to stop."""
    block, returns = op.regions[0].block, list(attribute(op, "returns"))
    arguments = [(parameter(value.type), f"%a{index}") for index, value in enumerate(block.arguments)]
    results = [("ptr", f"%r{index}") for index in range(len(returns))]
    head = [("ptr", "%context"), ("ptr", "%arguments"), ("ptr", "%frame")]
    name = control.inner_name(attribute(op, "name"))
    function = Function(module, name, [*head, *arguments, *results], "i32", "internal")
    code = Code(module, function, locations)
    code.frame, code.bounds = attribute(op, "frame"), bounds
    code.divided = sum(1 for _ in outline.nests(block)) >= outline.MANY
    context.read(function)
    end = code.block(block, [Lane(text) for _, text in arguments])
    control.returns(code, end, [place for _, place in results])
    function.finish()


def _entry(module: Module, op: Operation, name: str) -> None:
    """i32 (context, arguments packed at their natural alignment)."""
    function = Function(module, f'"{name}"', [("ptr", "%context"), ("ptr", "%arguments")], "i32")
    given = _unpacked(module, function, op)
    frame = function.op(f"load ptr, ptr {field(function, 'sram')}")
    head = ", ".join(["ptr %context", "ptr %arguments", f"ptr {frame}", *given])
    status = function.op(f"call i32 @{control.inner_name(name)}({head})")
    wrong = function.op(f"icmp eq i32 {status}, {control.FAULT}")  # a program that was aborted has no fault of its own
    function.do(f"ret i32 {function.op(f'zext i1 {wrong} to i32')}")
    function.finish()


def _cost_entry(module: Module, op: Operation) -> None:
    """void (arguments, grid, record): the function of costs runs once, in a context that has nothing but the grid."""
    name = attribute(op, "name")
    function = Function(module, f'"{name}"', [("ptr", "%arguments"), ("ptr", "%grid"), ("ptr", "%record")])
    given = _unpacked(module, function, op)
    function.do(f"%context = alloca [{ctypes.sizeof(context.Context)} x i8], align 8")
    for axis in range(3):
        size = function.op(f"load i32, ptr {function.op(f'getelementptr i32, ptr %grid, i64 {axis}')}")
        function.do(f"store i32 {size}, ptr {field(function, 'grid', axis)}")
    places = [
        f"ptr {function.op(f'getelementptr i64, ptr %record, i64 {at}')}" for at in range(len(attribute(op, "returns")))
    ]
    head = ", ".join(["ptr %context", "ptr %arguments", "ptr null", *given, *places])
    function.do(f"call i32 @{control.inner_name(name)}({head})")
    function.do("ret void")
    function.finish()


def _unpacked(module: Module, function: Function, op: Operation) -> list[str]:
    """The arguments of ``op``, of the bytes at %arguments, as a call passes them."""
    e = Code(module, function, []).lanes(False)
    elems, given = [elem_of(value.type) for value in op.regions[0].block.arguments], []
    for elem, at in zip(elems, packed(elems)):
        place = function.op(f"getelementptr i8, ptr %arguments, i64 {at}")
        read = function.op(f"load {memory_base(elem)}, ptr {place}, align {size(elem)}")
        given.append(f"{base(elem)} {from_memory(e, elem, read)}")
    return given


def packed(types: list[Scalar | Ptr]) -> list[int]:
    """Where each of a kernel's arguments lies, and the bytes of all."""
    at, places = 0, []
    for elem in types:
        at = -(-at // size(elem)) * size(elem)
        places.append(at)
        at += size(elem)
    return [*places, at]
