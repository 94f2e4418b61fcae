"""Which arguments of the kernel an address of the machine IR may come from, followed through branches, loops, buffers and calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..ir.core import Operation, Value
from ..ir.types import Buf, Ptr
from ..machine.ops import attribute, groups

#: numbers of the kernel's arguments; None: from memory, from an integer, or from what is not known
Origin = frozenset[int] | None
_Edge = tuple[Value, Value]

# Operations whose result points where an operand does.
_MOVES = {"access", "bitcast", "select"}


def origins(module: Operation, kernel: str) -> dict[Value, Origin]:
    """The origin of each pointer of a module, and of each buffer of pointers; a value that is missing points nowhere.

    An address that may come from one of several arguments has all of them.
    """
    functions = {attribute(op, "name"): op for op in module.regions[0].block.operations}
    targets: dict[Value, list[Value]] = {}
    found: dict[Value, Origin] = {}
    for function in functions.values():
        for op in function.walk():
            edges = [(source, target) for source, target in _edges(op, functions) if _points(source)]
            for source, target in edges:
                targets.setdefault(source, []).append(target)
            if not edges and op.name != "alloc":
                found.update((value, None) for value in op.results if _points(value))
    arguments = functions[kernel].regions[0].block.arguments
    found.update((value, frozenset({at})) for at, value in enumerate(arguments) if _points(value))
    todo = list(found)
    while todo:
        value = todo.pop()
        for target in targets.get(value, ()):
            old, new = found.get(target, frozenset()), found[value]
            joined = None if old is None or new is None else old | new
            if target not in found or joined != old:
                found[target] = joined
                todo.append(target)
    return found


def _points(value: Value) -> bool:
    type = value.type
    return isinstance(type.elem if isinstance(type, Buf) else type, Ptr)


def _both(one: Sequence[Value], other: Sequence[Value]) -> Iterator[_Edge]:
    """Values that go one way, and buffers, which are the same storage."""
    for a, b in zip(one, other):
        yield a, b
        if isinstance(a.type, Buf):
            yield b, a


def _edges(op: Operation, functions: dict[str, Operation]) -> Iterable[_Edge]:
    """(from, to): the second may point where the first one does."""
    ends = [region.blocks[-1].terminator for region in op.regions]
    if op.name in _MOVES or (op.name == "elementwise" and attribute(op, "opcode") == "addptr"):
        yield from ((value, op.result) for value in op.operands)
    elif op.name == "recast":
        yield from _both(op.operands, op.results)
    elif op.name == "read":
        yield op.operands[0], op.result
    elif op.name in ("write", "copy"):
        to, source = op.operands[:2]
        yield source, to
    elif op.name == "for":
        inits, first = groups(op)["inits"], op.regions[0].block.arguments[1:]
        for sources in (inits, ends[0].operands):
            yield from zip(sources, first)
            yield from zip(sources, op.results)
    elif op.name == "while":
        before, after = (region.block.arguments for region in op.regions)
        yield from zip(groups(op)["inits"], before)
        yield from zip(ends[1].operands, before)
        yield from zip(groups(ends[0])["args"], after)
        yield from zip(groups(ends[0])["args"], op.results)
    elif op.name == "if":
        for end in ends:
            yield from zip(end.operands, op.results)
    elif op.name == "call":
        body = functions[attribute(op, "callee")].regions[0].block
        yield from _both(op.operands, body.arguments)
        yield from zip(body.terminator.operands, op.results)
