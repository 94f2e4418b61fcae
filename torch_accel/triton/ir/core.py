"""Operations in blocks in regions, the values they define, and where they come from.

Both levels use these classes: Triton's IR as it was read, with Triton's names, and the tile IR, with the names of ``ops``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .types import Type


@dataclass(frozen=True, slots=True)
class Location:
    """A place in the user's source. ``caller`` is where the function was called from, when it was inlined."""

    file: str = ""
    line: int = 0
    column: int = 0
    name: str = ""
    caller: Location | None = None

    def __str__(self) -> str:
        here = f"{self.file}:{self.line}:{self.column}" if self.file else "unknown"
        return here + (f", called from {self.caller}" if self.caller else "")


UNKNOWN = Location()


class Value:
    """What an operation or a block's argument defines. ``name`` is a hint for the printer."""

    __slots__ = ("name", "owner", "type")

    def __init__(self, type: Type, owner: Operation | Block, name: str = "") -> None:
        self.type, self.owner, self.name = type, owner, name


class Operation:
    """One operation. ``segments`` counts the operands of each group where the table of operators has several variable ones."""

    __slots__ = (
        "attributes",
        "location",
        "name",
        "operands",
        "parent",
        "regions",
        "results",
        "segments",
        "successors",
    )

    def __init__(
        self,
        name: str,
        operands: Sequence[Value] = (),
        results: Sequence[Type] = (),
        attributes: dict[str, Any] | None = None,
        regions: Sequence[Region] = (),
        location: Location = UNKNOWN,
        segments: tuple[int, ...] | None = None,
        successors: Sequence[Block] = (),
    ) -> None:
        self.name = name
        self.operands = list(operands)
        self.results = [Value(type, self) for type in results]
        self.attributes = dict(attributes or {})
        self.regions = list(regions)
        self.location = location
        self.segments = segments
        self.successors = list(successors)
        self.parent: Block | None = None
        for region in self.regions:
            region.parent = self

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value

    def insert_before(
        self, name: str, operands: Sequence[Value], type: Type, attributes: dict[str, Any] | None = None
    ) -> Value:
        """Adds an operation with one result before this one, at its place in the source, and returns the result."""
        assert self.parent is not None
        made = Operation(name, operands, [type], attributes, location=self.location)
        made.parent = self.parent
        self.parent.operations.insert(self.parent.operations.index(self), made)
        return made.result

    def walk(self) -> Iterator[Operation]:
        """This operation, then all inside it, in order of text."""
        yield self
        for region in self.regions:
            for block in region.blocks:
                for operation in block.operations:
                    yield from operation.walk()


class Block:
    """Arguments, and operations of which the last one is a terminator."""

    __slots__ = ("arguments", "operations", "parent")

    def __init__(self, arguments: Sequence[Type] = (), names: Sequence[str] = ()) -> None:
        self.arguments = [Value(type, self) for type in arguments]
        for value, name in zip(self.arguments, names):
            value.name = name
        self.operations: list[Operation] = []
        self.parent: Region | None = None

    def append(self, operation: Operation) -> Operation:
        """Adds an operation at the end, and returns it."""
        operation.parent = self
        self.operations.append(operation)
        return operation

    @property
    def terminator(self) -> Operation:
        """The last operation."""
        return self.operations[-1]


class Region:
    """Blocks of one operation; the first is where it begins."""

    __slots__ = ("blocks", "parent")

    def __init__(self, blocks: Sequence[Block] = ()) -> None:
        self.blocks: list[Block] = []
        self.parent: Operation | None = None
        for block in blocks:
            self.append(block)

    def append(self, block: Block) -> Block:
        """Adds a block at the end, and returns it."""
        block.parent = self
        self.blocks.append(block)
        return block

    @property
    def block(self) -> Block:
        """The only block."""
        (block,) = self.blocks
        return block


class IRError(ValueError):
    """Something in a kernel that the tile compiler cannot take; the text names the line of the kernel."""

    def __init__(self, message: str, location: Location = UNKNOWN) -> None:
        super().__init__(f"accel: {message}" + (f" ({location})" if location.file else ""))
        self.location = location
