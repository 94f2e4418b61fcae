"""Checks a module: every value is defined before its uses, and every operation obeys the table of operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from . import rules
from .core import Block, IRError, Operation, Region, Value
from .ops import OPERATORS, REQUIRED, Operator, groups


def verify(module: Operation, operators: Mapping[str, Operator] = OPERATORS) -> None:
    """Raises IRError for the first fault of a module of the tile IR; the text names operation and line."""
    check(module, (*dominance(module), *table(module, operators)))


def verify_ssa(module: Operation) -> None:
    """The same for Triton's IR: only that every value is defined before its uses."""
    check(module, dominance(module))


def check(module: Operation, faults: Iterator[tuple[Operation, str]] | tuple[tuple[Operation, str], ...]) -> None:
    """Raises the first of the faults."""
    for operation, message in faults:
        raise IRError(f"the IR is wrong at '{operation.name}': {message}", operation.location)


def dominance(operation: Operation) -> Iterator[tuple[Operation, str]]:
    """Uses of values that are not defined on every way to them."""
    for region in operation.regions:
        yield from _region(region, set())


def _region(region: Region, outer: set[Value]) -> Iterator[tuple[Operation, str]]:
    dominators = _dominators(region)
    defined: dict[Block, set[Value]] = {
        block: {*block.arguments, *(value for op in block.operations for value in op.results)}
        for block in region.blocks
    }
    for block in region.blocks:
        visible = outer.union(*(defined[other] for other in dominators[block] if other is not block), block.arguments)
        for operation in block.operations:
            for index, value in enumerate(operation.operands):
                if value not in visible:
                    yield operation, f"operand {index} is used before its definition"
            for inner in operation.regions:
                # A function sees nothing of what is around it.
                yield from _region(inner, set() if operation.name in ("func", "tt.func") else visible)
            visible.update(operation.results)


def _dominators(region: Region) -> dict[Block, set[Block]]:
    """The blocks that lie on every way from the first block to each block; all for one that cannot be reached."""
    blocks = region.blocks
    before: dict[Block, list[Block]] = {block: [] for block in blocks}
    for block in blocks:
        for operation in block.operations:
            for successor in operation.successors:
                before[successor].append(block)
    found = {block: set(blocks) for block in blocks}
    if blocks:
        found[blocks[0]] = {blocks[0]}
    changed = True
    while changed:
        changed = False
        for block in blocks[1:]:
            new = {block}.union(set.intersection(*(found[p] for p in before[block])) if before[block] else blocks)
            changed |= new != found[block]
            found[block] = new
    return found


def table(module: Operation, operators: Mapping[str, Operator] = OPERATORS) -> Iterator[tuple[Operation, str]]:
    """Operations that the table of operators does not allow."""
    functions: dict[str, Operation] = {}
    for operation in module.walk():
        if operation.name == "func":
            name = operation.attributes.get("name", "")
            if name in functions:
                yield operation, f"two functions are named '{name}'"
            functions[name] = operation
    for operation in module.walk():
        for message in _operation(operation, operators):
            yield operation, message
        if operation.name == "call":
            for message in _call(operation, functions):
                yield operation, message


def _operation(op: Operation, operators: Mapping[str, Operator]) -> Iterator[str]:
    spec = operators.get(op.name)
    if spec is None:
        yield "no such operator"
        return
    try:
        groups(op, operators)
    except ValueError as error:
        yield str(error)
        return
    if spec.results is not None:
        yield from rules.expect("the number of results", len(op.results), spec.results)
    yield from rules.expect("the number of regions", len(op.regions), spec.regions)
    for name in op.attributes:
        if name not in spec.attributes:
            yield f"no attribute '{name}'"
    for name, default in spec.attributes.items():
        if default is REQUIRED and name not in op.attributes:
            yield f"attribute '{name}' is missing"
            return
    if any(len(region.blocks) != 1 for region in op.regions):
        yield "a region has not one block"
        return
    for region in op.regions:
        for position, inner in enumerate(region.block.operations, 1):
            ends = inner.name in operators and operators[inner.name].terminator
            if ends and position != len(region.block.operations):
                yield f"'{inner.name}' is not at the end of its block"
    if spec.rule is not None:
        yield from spec.rule(op)


def _call(op: Operation, functions: dict[str, Operation]) -> Iterator[str]:
    callee = functions.get(op.attributes["callee"])
    if callee is None:
        yield f"no function '{op.attributes['callee']}'"
        return
    yield from rules.expect(
        "the arguments' types", rules.types(op.operands), rules.types(callee.regions[0].block.arguments)
    )
    yield from rules.expect("the result types", rules.types(op.results), list(callee.attributes.get("returns", ())))
