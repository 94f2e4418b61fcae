"""Tiles of addresses or indices that a loop moves by the same step in every lane become what they are at its start and a scalar.

``for ..: p = p + step`` with a tile p is, with a scalar k from 0 on, ``for ..: k = k + step``, and p is the first one + k. Addresses are
affine in the lanes then, as they were at the start.
"""

from __future__ import annotations

from ..ir.core import Block, Operation, Region, Value
from ..ir.types import I64, Constant, Ptr, Scalar, Tile, with_element


def carried(module: Operation) -> Operation:
    """A copy of a module of the tile IR, with scalars for the tiles that loops move."""
    made = clone(module, {})
    for function in made.regions[0].block.operations:
        for op in list(function.walk()):
            if op.name == "for":
                _loop(function, op)
    return made


def clone(op: Operation, known: dict[Value, Value]) -> Operation:
    """A copy of an operation with its regions; ``known`` maps the values that it uses, and is given those that it defines."""
    regions = []
    for region in op.regions:
        blocks = []
        for block in region.blocks:
            new = Block([value.type for value in block.arguments], [value.name for value in block.arguments])
            known.update(zip(block.arguments, new.arguments))
            for inner in block.operations:
                new.append(clone(inner, known))
            blocks.append(new)
        regions.append(Region(blocks))
    operands = [known[value] for value in op.operands]
    types = [value.type for value in op.results]
    made = Operation(op.name, operands, types, op.attributes, regions, op.location, op.segments)
    for old, value in zip(op.results, made.results):
        value.name = old.name
        known[old] = value
    return made


def _loop(function: Operation, op: Operation) -> None:
    block, end = op.regions[0].block, op.regions[0].block.terminator
    for at, (argument, result) in enumerate(zip(block.arguments[1:], op.results)):
        steps = _steps(argument, end.operands[at])
        if not steps:
            continue
        first, tile = op.operands[3 + at], argument.type
        assert isinstance(tile, Tile)
        elem = I64 if isinstance(tile.elem, Ptr) else tile.elem
        opcode = "addptr" if isinstance(tile.elem, Ptr) else "addi"

        def moved(before: Operation, by: Value, tile: Tile = tile, first: Value = first, opcode: str = opcode) -> Value:
            """The tile after steps, made before an operation."""
            assert isinstance(by.type, Scalar)
            splat = before.insert_before("splat", [by], with_element(tile, by.type))
            return before.insert_before("elementwise", [first, splat], tile, {"opcode": opcode})

        op.operands[3 + at] = op.insert_before("const", [], elem, {"value": Constant(elem, (0,))})
        scalar = block.arguments[1 + at] = Value(elem, block, argument.name)
        _replace(function, argument, moved(block.operations[0], scalar))
        total = scalar
        for step in steps:
            wide = step if step.type == elem else end.insert_before("cast", [step], elem, {"kind": "extsi"})
            total = end.insert_before("elementwise", [total, wide], elem, {"opcode": "addi"})
        end.operands[at] = total
        new = op.results[at] = Value(elem, op, result.name)
        assert op.parent is not None
        after = op.parent.operations[op.parent.operations.index(op) + 1]
        _replace(function, result, moved(after, new))


def _steps(argument: Value, value: Value) -> list[Value]:
    """The scalars that are added to a tile in a turn of the loop; none if it is not moved in that way."""
    steps: list[Value] = []
    elem = argument.type.elem if isinstance(argument.type, Tile) else None
    if not isinstance(elem, Ptr) and not (isinstance(elem, Scalar) and elem.is_int and elem.width > 1):
        return steps
    while value is not argument:
        op = value.owner
        if (
            not isinstance(op, Operation)
            or op.name != "elementwise"
            or op.attributes["opcode"] not in ("addptr", "addi")
        ):
            return []
        source, by = op.operands
        scalar = _uniform(by)
        if scalar is None and op.attributes["opcode"] == "addi":
            source, scalar = by, _uniform(source)
        if scalar is None or (isinstance(scalar.type, Scalar) and scalar.type.width == 1):
            return []
        steps.append(scalar)
        value = source
    return steps


def _uniform(value: Value) -> Value | None:
    """The scalar that a tile has in each lane, if it shows; that of a constant is made beside it."""
    op = value.owner
    if not isinstance(op, Operation):
        return None
    if op.name == "splat":
        return op.operands[0]
    if op.name in ("broadcast", "expand"):
        return _uniform(op.operands[0])
    if op.name == "const" and len(op.attributes["value"].bits) == 1:
        elem = value.type.elem  # type: ignore[union-attr]
        return op.insert_before("const", [], elem, {"value": Constant(elem, op.attributes["value"].bits)})
    return None


def _replace(function: Operation, old: Value, new: Value) -> None:
    """Another value for all uses of one."""
    for op in function.walk():
        op.operands = [new if value is old else value for value in op.operands]
