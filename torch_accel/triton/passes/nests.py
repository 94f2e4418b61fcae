"""Where a nest of lanes accesses HBM: in which lanes, by which addresses, and which of its masks a DMA's bounds can say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..ir.core import Block, IRError, Operation, Value
from ..ir.types import I32, I64, Buf, element
from ..machine.ops import BODIES, groups

MEMORY = ("load", "store", "atomic_rmw", "atomic_cas")
_SWAPPED = {
    "slt": "sgt",
    "sle": "sge",
    "sgt": "slt",
    "sge": "sle",
    "ult": "ugt",
    "ule": "uge",
    "ugt": "ult",
    "uge": "ule",
}


@dataclass(frozen=True)
class Bound:
    """Lanes where start + index compares to the limit; start and limit are the core's, start None is 0."""

    index: Value
    compare: str
    start: Value | None
    limit: Value


@dataclass
class Place:
    """An access: ``indices`` are those of the lanes that it differs in, ``access`` its affine address, None if it has none.

    Its mask is the conjunction of ``bounds``, ``flags`` (of the core) and ``rest`` (of a lane).
    """

    op: Operation
    indices: tuple[Value, ...]
    access: Operation | None
    bounds: list[Bound] = field(default_factory=list)
    flags: list[Value] = field(default_factory=list)
    rest: list[Value] = field(default_factory=list)

    @property
    def atomic(self) -> bool:
        """Whether it is an atomic."""
        return self.op.name.startswith("atomic")

    @property
    def buffers(self) -> list[Value]:
        """Values of lanes that need a buffer to tell them, beside what is loaded or stored."""
        if self.atomic:
            return list(self.op.operands)
        return [*([] if self.access else self.op.operands[:1]), *self.rest[:1]]

    @property
    def element(self) -> Value:
        """A value of the type that is loaded or stored."""
        return self.op.operands[1] if self.op.name == "store" else self.op.result


class Nest:
    """A `loop`, `vreduce` or `vscan` at core level. Raises IRError for accesses that cannot be staged."""

    def __init__(self, op: Operation) -> None:
        self.op = op
        self.sizes: dict[Value, int] = {}
        self.order: dict[Operation, int] = {}
        self.blocks: set[Block] = set()
        self.known: dict[Value, frozenset[Value]] = {}
        self.places: list[Place] = []
        self._walk(op, ())
        self._check()
        self.used = {value for inner in op.walk() for value in inner.operands}

    @property
    def own(self) -> list[Value]:
        """The indices of the nest's own dimensions, if it is a `loop`."""
        return self.op.regions[0].block.arguments if self.op.name == "loop" else []

    def _walk(self, op: Operation, indices: tuple[Value, ...] | None) -> None:
        for number, region in enumerate(op.regions):
            inner, block = None, region.block
            if indices is not None and op.name in BODIES and not (op.name != "loop" and number == 1):
                dims = op.attributes.get("dims") or [op.attributes["count"]]
                self.sizes.update(zip(block.arguments, dims))
                inner = (*indices, *block.arguments[: len(dims)])
            self.blocks.add(block)
            for one in block.operations:
                self.order[one] = len(self.order)
                self._walk(one, inner)
                if one.name in MEMORY:
                    if inner is None:
                        raise IRError(f"a {one.name} in a lane's control flow cannot be staged", one.location)
                    self.places.append(self._place(one, inner))

    def _check(self) -> None:
        effects = [place.op for place in self.places if place.op.name != "load"]
        if len(effects) > 1:
            raise IRError("a nest that changes memory at two places cannot be staged", effects[1].location)
        if effects and any(self.order[place.op] > self.order[effects[0]] for place in self.places):
            raise IRError("a load behind a store of its nest cannot be staged", effects[0].location)
        written = {inner.operands[0] for inner in self.order if inner.name == "write"}
        for place in self.places:
            for op in self.needed(place.buffers):
                if any(one.name == "read" and one.operands[0] in written for one in op.walk()):
                    raise IRError("an address that depends on what its nest writes cannot be staged", op.location)

    # what values depend on

    def inside(self, value: Value) -> bool:
        """Whether a value is a lane's."""
        return value.owner in (self.blocks if isinstance(value.owner, Block) else self.order)

    def depends(self, value: Value) -> frozenset[Value]:
        """The indices that a value depends on."""
        if value in self.sizes:
            return frozenset({value})
        if not self.inside(value):
            return frozenset()
        if value not in self.known:
            if not isinstance(value.owner, Operation):
                raise IRError(
                    "an address that depends on what a scan or a combination gives cannot be staged", self.op.location
                )
            self.known[value] = frozenset().union(*map(self.depends, _free(value.owner)))
        return self.known[value]

    def needed(self, values: Iterable[Value]) -> list[Operation]:
        """The operations of lanes that give some values, in order. What is loaded is in a buffer: its address is not needed."""
        found: set[Operation] = set()
        todo = list(values)
        while todo:
            value = todo.pop()
            if value in self.sizes or not self.inside(value) or value.owner in found:
                continue
            self.depends(value)
            assert isinstance(value.owner, Operation)
            found.add(value.owner)
            todo += _free(value.owner, staged=True)
        return sorted(found, key=self.order.__getitem__)

    # accesses

    def _place(self, op: Operation, around: tuple[Value, ...]) -> Place:
        named = groups(op)
        place = Place(op, around, None)
        address = op.operands[0].owner
        if op.name in ("load", "store"):
            if isinstance(address, Operation) and address.name == "access":
                known = groups(address)
                if not any(map(self.inside, (*known["base"], *known["offset"], *known["strides"]))):
                    place.access = address
            for mask in named["mask"]:
                self._split(mask, place)
        if op.name == "load":
            needed = {index for value in (op.operands[0], *named["mask"]) for index in self.depends(value)}
            place.indices = tuple(index for index in around if index in needed)
        return place

    def _split(self, mask: Value, place: Place) -> None:
        """Sorts the conjuncts of a mask; those of a gather all go by a buffer, as the one that is left over of any access does."""
        op = mask.owner
        if not self.inside(mask):
            place.flags.append(mask)
        elif isinstance(op, Operation) and op.name == "elementwise" and op.attributes["opcode"] == "andi":
            for operand in op.operands:
                self._split(operand, place)
        else:
            bound = self._bound(op) if place.access and isinstance(op, Operation) and op.name == "cmp" else None
            (place.rest if bound is None else place.bounds).append(mask if bound is None else bound)  # type: ignore[arg-type]

    def _bound(self, op: Operation) -> Bound | None:
        a, b = op.operands
        compare = op.attributes["predicate"]
        if not self.inside(a):
            a, b, compare = b, a, _SWAPPED.get(compare, compare)
        if compare not in _SWAPPED or self.inside(b) or b.type not in (I32, I64):
            return None
        index, start = self._index(a), None
        owner = a.owner
        if index is None and isinstance(owner, Operation) and owner.attributes.get("opcode") == "addi":
            one, other = owner.operands
            if not self.inside(one):
                one, other = other, one
            index, start = (None, None) if self.inside(other) else (self._index(one), other)
        return None if index is None else Bound(index, compare, start, b)

    def _index(self, value: Value) -> Value | None:
        """The index that a value is, if it is one, maybe widened."""
        op = value.owner
        if (
            isinstance(op, Operation)
            and op.name == "cast"
            and op.attributes["kind"] in ("extsi", "extui")
            and value.type == I64
        ):
            value = op.operands[0]
        return value if value in self.sizes else None

    def bytes(self, sizes: dict[Value, int]) -> int:
        """About how many bytes the buffers of all accesses take, with some sizes of dimensions."""
        total = 0
        for place in self.places:
            shape = tuple(sizes[index] for index in place.indices)
            for value in (place.element, *place.buffers):
                total += Buf(shape, element(value.type)).bytes + 64  # type: ignore[arg-type]
        return total


def _free(op: Operation, staged: bool = False) -> list[Value]:
    """The values from outside that an operation uses; of accesses that are ``staged`` not what their buffers have told."""
    defined: set[Value] = set()
    used: list[Value] = []
    for inner in op.walk():
        defined.update(inner.results)
        for region in inner.regions:
            defined.update(region.block.arguments)
        skip = 0
        if staged and inner.name in MEMORY:
            skip = 1 if inner.name == "load" else len(inner.operands)
        used += inner.operands[skip:]
    return [value for value in used if value not in defined]
