"""Rules of types of the machine IR's operators, in the form of ``ir.rules``."""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.core import Operation, Value
from ..ir.rules import expect, types
from ..ir.types import I1, I32, I64, Buf, Constant, Ptr, Scalar, Tile, Token, Type

Errors = Iterator[str]


def _buffer(what: str, type: Type) -> Errors:
    if not isinstance(type, Buf):
        yield f"{what} is {type}, expected a buffer"


def buffers(op: Operation) -> Errors:
    """All operands are buffers."""
    for index, value in enumerate(op.operands):
        yield from _buffer(f"operand {index}", value.type)


def alloc(op: Operation) -> Errors:
    """A buffer in SRAM or in the accumulators; its place, where it is planned, is aligned."""
    type = op.results[0].type
    yield from _buffer("the result type", type)
    if isinstance(type, Buf):
        if type.space != "sram":
            yield f"the space is {type.space}, expected sram"
        if type.align < 1 or type.align & (type.align - 1):
            yield f"align is {type.align}, expected a power of two"
        offset = op.attributes.get("offset", -1)
        if offset != -1 and (offset < 0 or offset % type.align):
            yield f"offset is {offset}, expected a multiple of {type.align}, or -1"


def data(op: Operation) -> Errors:
    """A constant of the shape and elements of its buffer, which is in const."""
    type, value = op.results[0].type, op.attributes["value"]
    if not isinstance(type, Buf) or type.space != "const" or not isinstance(value, Constant):
        yield f"the result type is {type}, expected a buffer in const"
    else:
        yield from expect("the constant's type", value.type, Tile(type.shape, type.elem))
        if len(value.bits) not in (1, type.count):
            yield f"{len(value.bits)} constants for {type.count} elements"


def recast(op: Operation) -> Errors:
    """The same bytes: as many elements, of the same type and space."""
    source, result = op.operands[0].type, op.results[0].type
    if not isinstance(source, Buf) or not isinstance(result, Buf):
        yield f"{source} to {result}, expected buffers"
        return
    same = [(one.elem, one.space, one.layout, one.count) for one in (source, result)]
    yield from expect("element type, space, layout and number of elements", same[1], same[0])
    yield from expect("the layout", source.layout, "row")


def copy(op: Operation) -> Errors:
    """Two buffers of one shape and element type; the target can be written."""
    yield from buffers(op)
    target, source = types(op.operands)
    if isinstance(target, Buf) and isinstance(source, Buf):
        yield from expect("the source", (source.shape, source.elem), (target.shape, target.elem))
        yield from _writable(op.operands[0])


def _writable(value: Value) -> Errors:
    if isinstance(value.type, Buf) and value.type.space == "const":
        yield "it writes to const"


def _element(op: Operation, buf: Type, elem: Type, places: list[Value]) -> Errors:
    yield from _buffer("the first operand", buf)
    if isinstance(buf, Buf):
        if buf.space == "hbm":
            yield "it accesses hbm, which only a DMA does"
        yield from expect("the element type", elem, buf.elem)
        yield from expect("the indices' types", types(places), [I32] * len(buf.shape))


def read(op: Operation) -> Errors:
    """An index for each dimension, and the element type as the result."""
    yield from _element(op, op.operands[0].type, op.results[0].type, op.operands[1:])


def write(op: Operation) -> Errors:
    """An index for each dimension, a value of the element type, a buffer that can be written."""
    yield from _element(op, op.operands[0].type, op.operands[1].type, op.operands[2:])
    yield from _writable(op.operands[0])


def slot(op: Operation) -> Errors:
    """A buffer without its first dimension, in whose number the i32 is."""
    source, index, result = op.operands[0].type, op.operands[1].type, op.results[0].type
    if not isinstance(source, Buf) or not isinstance(result, Buf) or not source.shape:
        yield f"{source} to {result}, expected buffers"
        return
    yield from expect("the index's type", index, I32)
    yield from expect("the shape", result.shape, source.shape[1:])
    same = [(one.elem, one.space, one.layout) for one in (source, result)]
    yield from expect("element type, space and layout", same[1], same[0])


COMPARISONS = ("slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")


def window(op: Operation) -> Errors:
    """A strided buffer in hbm: an i64 stride for each dimension; of each bound its dimension, comparison, start and limit."""
    type = op.results[0].type
    sizes = op.segments or (1, 1, 0, 0, 0)
    strides, rest = op.operands[2 : 2 + sizes[2]], op.operands[2 + sizes[2] :]
    base, offset = types(op.operands[:2])
    if not isinstance(type, Buf) or (type.space, type.layout) != ("hbm", "strided"):
        yield f"the result type is {type}, expected a strided buffer in hbm"
        return
    yield from expect("the base", base, Ptr(type.elem))
    yield from expect("the type of offset and strides", [offset, *types(strides)], [I64] * (1 + len(type.shape)))
    bounds, compare = op.attributes.get("bounds", ()), op.attributes.get("compare", ())
    yield from expect("the number of starts, limits and comparisons", [*sizes[3:], len(compare)], [len(bounds)] * 3)
    for one in bounds:
        if not 0 <= one < len(type.shape):
            yield f"a bound is of dimension {one}, expected one of {type}"
    for one in compare:
        if one not in COMPARISONS:
            yield f"a bound's comparison is '{one}', expected one of {', '.join(COMPARISONS)}"
    for start, limit in zip(rest[: len(bounds)], rest[len(bounds) :]):
        yield from expect("the limit's type", limit.type, start.type)
        if start.type not in (I32, I64):
            yield f"a start is {start.type}, expected i32 or i64"


def indexed(op: Operation) -> Errors:
    """An indexed buffer in hbm: an address for each element, in SRAM."""
    addresses, type = op.operands[0].type, op.results[0].type
    if not isinstance(type, Buf) or (type.space, type.layout) != ("hbm", "indexed"):
        yield f"the result type is {type}, expected an indexed buffer in hbm"
    elif not isinstance(addresses, Buf) or addresses.space != "sram":
        yield f"the addresses are {addresses}, expected a buffer in sram"
    else:
        yield from expect("the addresses", (addresses.shape, addresses.elem), (type.shape, Ptr(type.elem)))


def token(op: Operation) -> Errors:
    """A token."""
    yield from expect("the result type", op.results[0].type, Token())


def dma_start(op: Operation) -> Errors:
    """Buffers of one shape and element type, one of them in hbm, one in sram; an i1 and a buffer of i1 in sram if any."""
    yield from token(op)
    target, source = types(op.operands[:2])
    if not isinstance(target, Buf) or not isinstance(source, Buf):
        yield f"{source} to {target}, expected buffers"
        return
    yield from expect("the source", (source.shape, source.elem), (target.shape, target.elem))
    if {target.space, source.space} != {"hbm", "sram"}:
        yield f"it moves from {source.space} to {target.space}, expected hbm and sram"
    sizes = op.segments or (1, 1, len(op.operands) - 2, 0)
    rest = types(op.operands[2:])
    yield from expect("go", rest[: sizes[2]], [I1] * sizes[2])
    for mask in rest[sizes[2] :]:
        if not isinstance(mask, Buf) or (mask.shape, mask.elem, mask.space) != (target.shape, I1, "sram"):
            yield f"the mask is {mask}, expected a buffer of i1 in sram, of the shape of {target}"


def dma_wait(op: Operation) -> Errors:
    """A token."""
    yield from expect("the operand", op.operands[0].type, Token())


def histogram(op: Operation) -> Errors:
    """Integers to count, in a buffer of bins; a mask as large as the values."""
    yield from buffers(op)
    known = [value.type for value in op.operands if isinstance(value.type, Buf)]
    if len(known) != len(op.operands):
        return
    for one in known[:2]:
        if not isinstance(one.elem, Scalar) or not one.elem.is_int:
            yield f"{one} does not have integers"
    if len(known[0].shape) != 1:
        yield f"{known[0]} does not have one dimension"
    for one in known[2:]:
        yield from expect("the mask", (one.shape, one.elem), (known[1].shape, I1))
    yield from _writable(op.operands[0])


def _body(op: Operation, index: int, arguments: list[Type], results: list[Type] | None) -> Errors:
    block = op.regions[index].block
    yield from expect(f"region {index}: the type of the arguments", types(block.arguments), arguments)
    if not block.operations or block.terminator.name != "yield":
        yield f"region {index}: does not end with yield"
    elif results is not None:
        yield from expect(f"region {index}: what it gives", types(block.terminator.operands), results)


def loop(op: Operation) -> Errors:
    """Sizes of at least 1, a vector dimension among them, an i32 index for each in the body."""
    dims, vec = op.attributes["dims"], op.attributes.get("vec", -1)
    if any(size < 1 for size in dims):
        yield f"dims is {dims}"
    if not -1 <= vec < len(dims):
        yield f"vec is {vec}, expected a dimension or -1"
    yield from _body(op, 0, [I32] * len(dims), [])


def _count(op: Operation) -> Errors:
    if op.attributes["count"] < 1:
        yield f"count is {op.attributes['count']}"


def vreduce(op: Operation) -> Errors:
    """A count of at least 1; the body gives the elements, and the combination takes and gives two of each."""
    elems = types(op.results)
    yield from _count(op)
    yield from _body(op, 0, [I32], elems)
    yield from _body(op, 1, elems * 2, elems)


def vscan(op: Operation) -> Errors:
    """As ``vreduce``; the last region takes the index and the running values."""
    block = op.regions[0].block
    elems = types(block.terminator.operands) if block.operations else []
    yield from _count(op)
    yield from _body(op, 0, [I32], None)
    yield from _body(op, 1, elems * 2, elems)
    yield from _body(op, 2, [I32, *elems], [])


def access(op: Operation) -> Errors:
    """A pointer, an i64 offset, and as many i64 strides as indices."""
    base, offset = types(op.operands[:2])
    yield from expect("the result type", op.results[0].type, base)
    if not isinstance(base, Ptr):
        yield f"the base is {base}, expected a pointer"
    sizes = op.segments or (1, 1, 0, 0)
    strides, indices = op.operands[2 : 2 + sizes[2]], op.operands[2 + sizes[2] :]
    yield from expect("the type of offset and strides", [offset, *types(strides)], [I64] * (1 + len(strides)))
    yield from expect("the number of indices", len(indices), len(strides))
    yield from expect("the indices' types", types(indices), [I32] * len(indices))
    if len(set(indices)) != len(indices):
        yield "an index is given twice"


def mma(op: Operation) -> Errors:
    """Three buffers: (M, N), (M, K) and (K, N)."""
    yield from buffers(op)
    shapes = [value.type.shape for value in op.operands if isinstance(value.type, Buf)]
    if len(shapes) == 3:
        acc, a, b = shapes
        if len(a) not in (2, 3) or a[:-2] != b[:-2] or a[-1] != b[-2] or acc != (*a[:-1], b[-1]):
            yield f"{a} times {b} is not {acc}"
    yield from _writable(op.operands[0])
