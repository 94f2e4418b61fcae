"""The lives of buffers and their places in SRAM."""

from __future__ import annotations

import functools

from ..ir.core import Block, Location, Operation, Value
from ..ir.types import Buf
from ..machine.ops import attribute
from ..target import CPU

SRAM = CPU.sram


def free(module: Operation) -> Operation:
    """Adds the `free` of each `alloc`, behind the last operation of its block that uses it."""
    for function in module.regions[0].block.operations:
        for op in list(function.walk()):
            for region in op.regions:
                _free(region.block)
    return module


def _free(block: Block) -> None:
    last: dict[Value, int] = {}
    owner: dict[Value, Value] = {}  # a recast's buffer
    for number, op in enumerate(block.operations):
        if op.name == "alloc":
            owner[op.result], last[op.result] = op.result, number
        for inner in op.walk():
            for value in inner.operands:
                if value in owner:
                    last[owner[value]] = number
            if inner.name == "recast" and inner.operands[0] in owner:
                owner[inner.result] = owner[inner.operands[0]]
    operations: list[Operation] = []
    ends: dict[int, list[Value]] = {}
    for value, number in last.items():
        ends.setdefault(number, []).append(value)
    for number, op in enumerate(block.operations):
        operations.append(op)
        for value in ends.get(number, ()):
            done = Operation("free", (value,), location=op.location)
            done.parent = block
            operations.append(done)
    block.operations = operations


def plan(module: Operation, limit: int = SRAM) -> Operation:
    """Gives each buffer a place in its function's frame; those that do not live together may share one.

    Raises Triton's OutOfResources (the autotuner skips such a configuration) when a program needs more than ``limit`` bytes.
    """
    functions = {op.attributes["name"]: op for op in module.regions[0].block.operations}
    for function in functions.values():
        function.attributes["frame"] = _Frame().block(function.regions[0].block)
    total = functools.cache(lambda name: _total(name, functions, total))
    for name, function in functions.items():
        needed = function.attributes["sram"] = total(name)
        if needed > limit and attribute(function, "public"):
            raise _out_of_resources()(needed, limit, name, _largest(function))
    return module


def _total(name: str, functions: dict[str, Operation], total: functools._lru_cache_wrapper[int]) -> int:
    """Bytes of a function's frame and of the deepest frames of its calls."""
    callees = {op.attributes["callee"] for op in functions[name].walk() if op.name == "call"}
    own = functions[name].attributes["frame"]
    deepest = max((total(callee) for callee in callees), default=0)
    return _up(own, 64) + deepest if callees else own


def _up(size: int, align: int) -> int:
    return -(-size // align) * align


class _Frame:
    """First fit: ``live`` are places (begin, end) of the buffers that live now."""

    def __init__(self) -> None:
        self.live: dict[Value, tuple[int, int]] = {}
        self.size = 0

    def block(self, block: Block) -> int:
        """Places of the buffers of a block; gives the size of the frame so far."""
        for op in block.operations:
            if op.name == "alloc":
                op.attributes["offset"] = self.place(op.result)
            elif op.name == "free":
                del self.live[op.operands[0]]
            for region in op.regions:
                self.block(region.block)
        return self.size

    def place(self, value: Value) -> int:
        type, begin = value.type, 0
        assert isinstance(type, Buf)
        for other in sorted(self.live.values()):
            if begin + type.bytes <= other[0]:
                break
            begin = max(begin, _up(other[1], type.align))
        self.live[value] = (begin, begin + type.bytes)
        self.size = max(self.size, begin + type.bytes)
        return begin


def _largest(function: Operation) -> tuple[Buf, Location]:
    buffers = [(op.result.type, op.location) for op in function.walk() if op.name == "alloc"]
    return max(buffers, key=lambda pair: pair[0].bytes)  # type: ignore[union-attr, return-value]


@functools.cache
def _out_of_resources() -> type[Exception]:
    """Triton's error, which its autotuner knows, with our text."""
    from triton.runtime.errors import OutOfResources

    class OutOfSram(OutOfResources):
        def __init__(self, required: int, limit: int, kernel: str, largest: tuple[Buf, Location]) -> None:
            super().__init__(required, limit, "SRAM")
            self.kernel, (self.type, self.location) = kernel, largest

        def __str__(self) -> str:
            return (
                f"accel: kernel '{self.kernel}' needs {self.required} bytes of SRAM and a core has {self.limit}; "
                f"the largest buffer is {self.type} ({self.type.bytes} bytes, {self.location}). Use smaller blocks."
            )

        def __reduce__(self) -> tuple[object, ...]:
            return (_rebuild, (self.required, self.limit, self.kernel, (self.type, self.location)))

    return OutOfSram


def _rebuild(*given: object) -> Exception:
    return _out_of_resources()(*given)
