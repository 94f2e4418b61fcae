"""Runs blocks of operations on NumPy arrays. What an operation does stands in the tables of ``raw`` and ``tile``."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ir.core import Block, Location, Operation, Region, Value
from ..ir.types import Ptr, Scalar, Tile, Type, element
from . import fold, nan
from .arithmetic import array_dtype
from .checks import CheckedMemory
from .memory import Memory, MemoryFault

Array = NDArray[Any]
Handler = Callable[["Engine", Operation, list[Array]], "Sequence[Array] | None"]


class KernelFault(RuntimeError):
    """What a kernel did wrong: the text names kernel, line, program and the fault.

    ``kind`` is "oob", "uninit", "race", "nan" or "assert"; ``argument`` is the array that it is about, or "".
    """

    def __init__(
        self, kernel: str, program: tuple[int, ...], location: Location, message: str, kind: str, argument: str
    ) -> None:
        super().__init__(f"accel: kernel '{kernel}', program {program}, {location}: {message}")
        self.kernel, self.program, self.location, self.kind, self.argument = kernel, program, location, kind, argument


class AssertFault(Exception):
    """A `device_assert` that does not hold."""

    kind, argument, location = "assert", "", None


class Engine:
    """One launch: functions of a module, a grid, memory; ``programs`` runs each program to its end, in ascending order."""

    def __init__(
        self,
        functions: Mapping[str, Operation],
        handlers: Mapping[str, Handler],
        memory: Memory,
        grid: tuple[int, ...],
        say: Callable[[str], None] = print,
    ) -> None:
        self.functions, self.handlers, self.memory, self.say = functions, handlers, memory, say
        self.grid: tuple[int, int, int] = (*grid, 1, 1, 1)[:3]  # type: ignore[assignment]
        self.kernel = ""
        self.program = (0, 0, 0)
        self.values: dict[Value, Array] = {}
        #: called before each operation, for checks that look at values
        self.watch: Callable[[Engine, Operation, list[Array]], None] | None = None
        if isinstance(memory, CheckedMemory):
            memory.place = lambda: (self.program, self.operation.location)
            self.watch = nan.watch if "nan" in memory.checks.kinds else None

    def programs(self, kernel: str, arguments: Sequence[Any]) -> None:
        """Runs the kernel over the grid. Raises KernelFault."""
        body = self.functions[kernel].regions[0]
        types = [value.type for value in body.blocks[0].arguments]
        if len(types) != len(arguments):
            raise TypeError(f"accel: kernel '{kernel}' takes {len(types)} arguments, {len(arguments)} given")
        passed = [argument(type, value) for type, value in zip(types, arguments)]
        self.kernel = kernel
        with np.errstate(all="ignore"):
            for z, y, x in itertools.product(*(range(size) for size in reversed(self.grid))):
                self.program = (x, y, z)
                self.values = {}
                self.function(self.functions[kernel], passed)

    def function(self, function: Operation, arguments: Sequence[Array]) -> list[Array]:
        """What a call of a function returns."""
        outer, self.values = self.values, {}
        results = self.blocks(function.regions[0], arguments)
        self.values = outer
        return results

    def blocks(self, region: Region, arguments: Sequence[Array]) -> list[Array]:
        """What a region gives whose blocks may branch to each other."""
        block, results = region.blocks[0], list(arguments)
        while True:
            end, results = self.block(block, results)
            if not end.successors:
                return results
            block, results = self.follow(end, results)

    def follow(self, end: Operation, operands: list[Array]) -> tuple[Block, list[Array]]:
        """Where a branch goes, and what it passes: only Triton's IR has branches."""
        raise NotImplementedError(end.name)

    def block(self, block: Block, arguments: Sequence[Array]) -> tuple[Operation, list[Array]]:
        """Runs a block; gives its terminator and the terminator's operands."""
        values = self.values
        values.update(zip(block.arguments, arguments))
        for operation in block.operations:
            operands = [self.operand(value) for value in operation.operands]
            handler = self.handlers.get(operation.name)
            if handler is None:
                return operation, operands
            self.operation = operation
            try:
                if self.watch is not None:
                    self.watch(self, operation, operands)
                results = handler(self, operation, operands)
            except (MemoryFault, AssertFault) as fault:
                place = fault.location or operation.location
                raise KernelFault(self.kernel, self.program, place, str(fault), fault.kind, fault.argument) from None
            if results is not None:
                values.update(zip(operation.results, results))
        raise AssertionError(f"block of '{block.parent and block.parent.parent}' without terminator")

    def operand(self, value: Value) -> Array:
        """A value, where an operation uses it."""
        return self.values[value]

    def region(self, region: Region, arguments: Sequence[Array] = ()) -> list[Array]:
        """What a region with one block gives."""
        return self.block(region.block, arguments)[1]

    def for_loop(self, op: Operation, operands: list[Array], no_sign: bool) -> list[Array]:
        """Operands are lower, upper, step and the loop's values."""
        limits = [array.view(f"uint{array.itemsize * 8}") if no_sign else array for array in operands[:3]]
        values = operands[3:]
        for index in range(*(limit.item() for limit in limits)):
            values = self.region(op.regions[0], [np.array(index).astype(operands[0].dtype), *values])
        return values

    def while_loop(self, op: Operation, values: list[Array]) -> list[Array]:
        """The first region gives whether to go on and the second's arguments."""
        while True:
            go, *passed = self.region(op.regions[0], values)
            if not go:
                return passed
            values = self.region(op.regions[1], passed)

    def combine(self, op: Operation) -> fold.Combine:
        """The function of an operation's first region, on arrays of any shape."""
        block = op.regions[0].block

        def call(a: fold.Tuple, b: fold.Tuple) -> fold.Tuple:
            shape = a[0].shape
            return [np.broadcast_to(value, shape) for value in self.block(block, [*a, *b])[1]]

        plain = not any(inner.regions or inner.name in ("call", "tt.call") for inner in block.operations)
        return call if plain else fold.one_by_one(call)

    def mapped(self, op: Operation, operands: list[Array], pack: int) -> list[Array]:
        """A function of scalars, applied to ``pack`` neighbours of each operand at a time."""
        columns = [column for array in operands for column in array.reshape(-1, pack).T]
        results = [np.empty((pack, value.type.count // pack), array_dtype(element(value.type))) for value in op.results]  # type: ignore[union-attr]
        for index in range(columns[0].size):
            given = self.blocks(op.regions[0], [np.asarray(column[index]) for column in columns])
            for at, value in enumerate(given):
                results[at // pack][at % pack, index] = value
        return [result.T.reshape(value.type.shape) for result, value in zip(results, op.results)]  # type: ignore[union-attr]

    def atomic(
        self, addresses: Array, operands: list[Array], mask: Array | None, update: Callable[..., Array], order: str
    ) -> Array:
        """Lane after lane: gives the old elements; ``update(old, *operands of the lane)`` gives the new one."""
        old = np.zeros(addresses.shape, operands[0].dtype)
        rows = [np.broadcast_to(operand, addresses.shape) for operand in operands]
        for lane in np.ndindex(addresses.shape):
            if mask is None or np.broadcast_to(mask, addresses.shape)[lane]:
                given = [row[lane].reshape(1) for row in rows]
                old[lane] = self._exchange(addresses[lane].reshape(1), given, update, order)[0]
        return old

    def _exchange(self, address: Array, given: list[Array], update: Callable[..., Array], order: str) -> Array:
        return self.memory.exchange(address, given[0].dtype, lambda old: update(old, *given), order)


def argument(type: Type, value: Any) -> Array:
    """A kernel's argument: an address for a pointer, a number for anything else; an array is one already."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(type, Ptr):
        return np.array(int(value), dtype=np.int64)
    assert isinstance(type, Scalar)
    if type.is_float:
        from ..ir.floats import encode

        return encode(type, np.array(float(value)))
    return (
        np.array(int(value) & (1 << type.width) - 1, dtype=f"uint{max(type.width, 8)}")
        .view(f"int{max(type.width, 8)}")
        .astype(array_dtype(type))
    )


def shown(
    prefix: str,
    hexadecimal: bool,
    signs: Sequence[int],
    operands: list[Array],
    types: list[Type],
    program: tuple[int, ...],
) -> list[str]:
    """The lines of a `device_print`, one for each element, in Triton's form."""
    from ..ir.floats import decode

    lines = []
    for at, (array, type) in enumerate(zip(operands, types)):
        elem = element(type)
        number = decode(elem, array) if isinstance(elem, Scalar) and elem.is_float else array
        for index in np.ndindex(array.shape):
            value = number[index]
            if hexadecimal or isinstance(elem, Ptr):
                width = 64 if isinstance(elem, Ptr) else elem.width  # type: ignore[union-attr]
                text = f"0x{int(array[index].view(f'uint{array.itemsize * 8}')):0{width // 4}x}"
            elif number.dtype.kind == "f":
                text = f"{value:f}"
            else:
                text = str(
                    int(value) if not signs or signs[at] or value >= 0 else int(value) & (1 << array.itemsize * 8) - 1
                )
            place = f" idx ({', '.join(map(str, index))})" if isinstance(type, Tile) else ""
            operand = f"(operand {at}) " if len(operands) > 1 else ""
            lines.append(f"pid ({', '.join(map(str, program))}){place}{prefix}{operand}{text}")
    return lines or [f"pid ({', '.join(map(str, program))}){prefix}"]
