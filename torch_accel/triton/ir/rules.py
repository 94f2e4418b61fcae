"""Rules of types, one function for each operator: they yield what is wrong with an operation."""

from __future__ import annotations

from collections.abc import Iterator

from .core import Operation, Value
from .extern import FUNCTIONS
from .opcodes import CASTS, ELEMENTWISE, FLOAT_PREDICATES, INT_PREDICATES
from .types import I1, I32, I64, Ptr, Scalar, Tile, Type, View, element, shape, with_element

__all__ = ["bits", "expect", "kind", "pointee", "types"]

Errors = Iterator[str]


def kind(type: Type) -> str:
    """Of the elements: int, float, ptr."""
    elem = element(type)
    if isinstance(elem, Ptr):
        return "ptr"
    return "float" if isinstance(elem, Scalar) and elem.is_float else "int"


def types(values: list[Value]) -> list[Type]:
    """Types of values."""
    return [value.type for value in values]


def expect(what: str, found: object, wanted: object) -> Errors:
    """Yields a message if the two differ."""
    if found != wanted:
        yield f"{what} is {_text(found)}, expected {_text(wanted)}"


def _text(value: object) -> str:
    return f"({', '.join(map(str, value))})" if isinstance(value, (list, tuple)) else str(value)


def func(op: Operation) -> Errors:
    if len(op.attributes.get("arguments", ())) not in (0, len(op.regions[0].blocks[0].arguments)):
        yield "'arguments' has another length than the function's arguments"


def returns(op: Operation) -> Errors:
    at = op.parent.parent.parent if op.parent and op.parent.parent else None
    if at is None or at.name != "func":
        yield "it stands in no function's own block"
    else:
        yield from expect("the result type", types(op.operands), list(at.attributes.get("returns", ())))


def _region(op: Operation, index: int, arguments: list[Type], end: str, results: list[Type], skip: int = 0) -> Errors:
    block = op.regions[index].block
    yield from expect(f"region {index}: the type of the arguments", types(block.arguments), arguments)
    if not block.operations or block.terminator.name != end:
        yield f"region {index}: does not end with {end}"
    else:
        yield from expect(f"region {index}: what it gives", types(block.terminator.operands[skip:]), results)


def for_(op: Operation) -> Errors:
    lower, upper, step, *inits = types(op.operands)
    yield from expect("the bounds' type", [upper, step], [lower, lower])
    if not isinstance(lower, Scalar) or not lower.is_int:
        yield f"the bounds' type is {lower}, expected an integer"
    yield from expect("the result type", types(op.results), inits)
    yield from _region(op, 0, [lower, *inits], "yield", inits)


def while_(op: Operation) -> Errors:
    inits, results = types(op.operands), types(op.results)
    yield from _region(op, 0, inits, "condition", results, skip=1)
    yield from _region(op, 1, results, "yield", inits)


def if_(op: Operation) -> Errors:
    yield from flag(op)
    for index in (0, 1):
        yield from _region(op, index, [], "yield", types(op.results))


def flag(op: Operation) -> Errors:
    elem = element(op.operands[0].type)
    yield from expect("the condition's type", elem, I1)


def index(op: Operation) -> Errors:
    yield from expect("the result type", op.results[0].type, I32)
    if op.attributes.get("axis", 0) not in (0, 1, 2):
        yield f"axis is {op.attributes['axis']}, expected 0, 1 or 2"


def const(op: Operation) -> Errors:
    value = op.attributes["value"]
    yield from expect("the result type", op.results[0].type, value.type)
    count = value.type.count if isinstance(value.type, Tile) else 1
    if len(value.bits) not in (1, count):
        yield f"{len(value.bits)} constants for {count} elements"


def iota(op: Operation) -> Errors:
    yield from expect(
        "the result type", op.results[0].type, Tile((op.attributes["end"] - op.attributes.get("start", 0),), I32)
    )


def splat(op: Operation) -> Errors:
    yield from expect("the element type", element(op.results[0].type), op.operands[0].type)


def broadcast(op: Operation) -> Errors:
    source, result = op.operands[0].type, op.results[0].type
    yield from expect("the element type", element(result), element(source))
    if len(shape(source)) != len(shape(result)) or any(a not in (1, b) for a, b in zip(shape(source), shape(result))):
        yield f"{source} does not broadcast to {result}"


def _shaped(op: Operation, wanted: tuple[int, ...], source: int = 0) -> Errors:
    elem = element(op.operands[source].type)
    yield from expect("the result type", op.results[0].type, Tile(wanted, elem) if wanted else elem)  # type: ignore[arg-type]


def expand(op: Operation) -> Errors:
    old, axis = shape(op.operands[0].type), op.attributes["axis"]
    yield from _shaped(op, (*old[:axis], 1, *old[axis:]))


def reshape(op: Operation) -> Errors:
    source, result = op.operands[0].type, op.results[0].type
    yield from expect("the element type", element(result), element(source))
    sizes = [type.count if isinstance(type, Tile) else 1 for type in (source, result)]
    yield from expect("the number of elements", sizes[1], sizes[0])


def trans(op: Operation) -> Errors:
    old, order = shape(op.operands[0].type), op.attributes["order"]
    if sorted(order) != list(range(len(old))):
        yield f"order {_text(order)} is no permutation of {len(old)} dimensions"
    else:
        yield from _shaped(op, tuple(old[i] for i in order))


def join(op: Operation) -> Errors:
    yield from expect("the second operand's type", op.operands[1].type, op.operands[0].type)
    yield from _shaped(op, (*shape(op.operands[0].type), 2))


def split(op: Operation) -> Errors:
    old = shape(op.operands[0].type)
    yield from expect("the last dimension", old[-1:], (2,))
    yield from _shaped(op, old[:-1])
    yield from expect("the second result's type", op.results[1].type, op.results[0].type)


def cat(op: Operation) -> Errors:
    a, b = (shape(value.type) for value in op.operands)
    yield from expect("the second operand's element type", element(op.operands[1].type), element(op.operands[0].type))
    yield from _shaped(op, (a[0] + b[0], *a[1:]))


def gather(op: Operation) -> Errors:
    yield from _shaped(op, shape(op.operands[1].type))
    source, indices, axis = shape(op.operands[0].type), shape(op.operands[1].type), op.attributes["axis"]
    if len(source) != len(indices) or any(a != b for i, (a, b) in enumerate(zip(source, indices)) if i != axis):
        yield f"indices of shape {_text(indices)} for a source of shape {_text(source)}, axis {axis}"


def _combine(op: Operation, inputs: int) -> Errors:
    elems = [element(value.type) for value in op.operands] if op.name != "map" else []
    yield from _region(op, 0, elems * inputs, "yield", elems)


def map_(op: Operation) -> Errors:
    pack = op.attributes.get("pack", 1)
    arguments = [element(value.type) for value in op.operands for _ in range(pack)]
    results = [element(value.type) for value in op.results for _ in range(pack)]
    yield from _region(op, 0, arguments, "yield", results)


def reduce(op: Operation) -> Errors:
    axis = op.attributes["axis"]
    for operand, result in zip(op.operands, op.results):
        old = shape(operand.type)
        elem = element(operand.type)
        left = (*old[:axis], *old[axis + 1 :])
        yield from expect("a result's type", result.type, Tile(left, elem) if left else elem)  # type: ignore[arg-type]
    yield from expect("the number of results", len(op.results), len(op.operands))
    yield from _combine(op, 2)


def scan(op: Operation) -> Errors:
    yield from expect("the result type", types(op.results), types(op.operands))
    yield from _combine(op, 2)


def histogram(op: Operation) -> Errors:
    result = op.results[0].type
    if kind(op.operands[0].type) != "int" or len(shape(result)) != 1 or kind(result) != "int":
        yield f"{result} is no histogram of {op.operands[0].type}"


def elementwise(op: Operation) -> Errors:
    opcode = op.attributes["opcode"]
    if opcode not in ELEMENTWISE:
        yield f"no opcode '{opcode}'"
        return
    arity, wanted = ELEMENTWISE[opcode]
    yield from expect("the number of operands", len(op.operands), arity)
    first = op.operands[0].type
    yield from expect("the elements", kind(first), wanted)
    yield from expect("the result type", op.results[0].type, first)
    for value in op.operands[1:]:
        if opcode == "addptr":
            yield from expect("the shape of the index", shape(value.type), shape(first))
            yield from expect("the elements of the index", kind(value.type), "int")
        else:
            yield from expect("an operand's type", value.type, first)


def extern_math(op: Operation) -> Errors:
    symbol = op.attributes["symbol"]
    if symbol not in FUNCTIONS:
        yield f"no function '{symbol}' in the table of libdevice's functions"
        return
    operands, result = FUNCTIONS[symbol]
    float = next((element(value.type) for value in op.operands if kind(value.type) == "float"), None)
    known: dict[str, Type | None] = {"f": float, "i": I32, "l": I64}
    elems = [element(value.type) for value in (*op.operands, op.results[0])]
    yield from expect("the elements of operands and result", elems, [known[letter] for letter in operands + result])
    for value in op.operands:
        yield from expect("an operand's shape", shape(value.type), shape(op.results[0].type))


def cast(op: Operation) -> Errors:
    source, result = op.operands[0].type, op.results[0].type
    yield from expect("the shape", shape(result), shape(source))
    yield from expect("the elements", (kind(source), kind(result)), CASTS.get(op.attributes["kind"], ("no", "no")))
    old, new = element(source), element(result)
    if isinstance(old, Scalar) and isinstance(new, Scalar) and kind(source) == kind(result) == "int":
        wider = op.attributes["kind"] != "trunci"
        if (new.width > old.width) != wider or new.width == old.width:
            yield f"{op.attributes['kind']} from {old} to {new}"


def bits(type: Type) -> int:
    """Bits of an element; an address has 64."""
    elem = element(type)
    return elem.width if isinstance(elem, Scalar) else 64


def bitcast(op: Operation) -> Errors:
    source, result = op.operands[0].type, op.results[0].type
    yield from expect("the shape", shape(result), shape(source))
    yield from expect("the bits of an element", bits(result), bits(source))


def select(op: Operation) -> Errors:
    go, a, b = types(op.operands)
    if go not in (I1, with_element(a, I1)):
        yield f"the condition's type is {go}, expected {with_element(a, I1)} or i1"
    yield from expect("the types", [b, op.results[0].type], [a, a])


def cmp(op: Operation) -> Errors:
    a, b = types(op.operands)
    yield from expect("the second operand's type", b, a)
    yield from expect("the result type", op.results[0].type, with_element(a, I1))
    known = FLOAT_PREDICATES if kind(a) == "float" else INT_PREDICATES
    if op.attributes["predicate"] not in known:
        yield f"no predicate '{op.attributes['predicate']}' of {a}"


def view(op: Operation) -> Errors:
    result, base = op.results[0].type, op.operands[0].type
    if not isinstance(result, View) or not isinstance(base, Ptr) or base.elem != result.elem:
        yield f"{result} is no view of {base}"
    else:
        yield from expect("the operands' groups", op.segments, (1, *[len(result.shape)] * 3))


def pointee(type: Type) -> Type | None:
    """The type of what lies at a pointer, a tile of pointers or a view; None for anything else."""
    if isinstance(type, View):
        return Tile(type.shape, type.elem)
    elem = element(type)
    return with_element(type, elem.elem) if isinstance(elem, Ptr) and isinstance(elem.elem, (Scalar, Ptr)) else None


def _access(op: Operation, value: Type, mask: list[Value]) -> Errors:
    yield from expect("the type at the address", pointee(op.operands[0].type), value)
    for one in mask:
        yield from expect("the mask's type", one.type, with_element(value, I1))


def load(op: Operation) -> Errors:
    yield from _access(op, op.results[0].type, op.operands[1:2])
    for other in op.operands[2:]:
        yield from expect("the type of 'other'", other.type, op.results[0].type)


def store(op: Operation) -> Errors:
    yield from _access(op, op.operands[1].type, op.operands[2:])


def atomic_rmw(op: Operation) -> Errors:
    yield from store(op)
    yield from expect("the result type", op.results[0].type, op.operands[1].type)


def atomic_cas(op: Operation) -> Errors:
    yield from _access(op, op.operands[1].type, [])
    yield from expect("the types", [op.operands[2].type, op.results[0].type], [op.operands[1].type] * 2)


def dot(op: Operation) -> Errors:
    a, b, acc = (shape(value.type) for value in op.operands)
    yield from expect("the result type", op.results[0].type, op.operands[2].type)
    if len(a) not in (2, 3) or a[:-2] != b[:-2] or a[-1] != b[-2] or acc != (*a[:-1], b[-1]):
        yield f"{_text(a)} times {_text(b)} is not {_text(acc)}"


def dot_scaled(op: Operation) -> Errors:
    yield from expect("the result type", op.results[0].type, op.operands[2].type)
