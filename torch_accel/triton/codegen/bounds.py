"""Bounds: before an access, its lanes are compared with the memory of the arguments that its address may come from.

A loop whose accesses are affine is written twice, behind a test of its first and last addresses: without checks, and with them. A
check is a test in line for all lanes together; where it fails, a function of the module's own looks at each lane that the mask keeps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..analysis.origins import Origin
from ..ir.core import Operation, Value
from ..machine.ops import BODIES, attribute, groups
from . import control
from .context import OUT_OF_BOUNDS, TEXT, write_fault
from .emit import Function, Module
from .formats import base
from .libm import PREFIX
from .scalars import size
from .values import Code, Lane, constant, elem_of

ACCESSES = ("load", "store", "atomic_rmw", "atomic_cas")
_LONG = 1 << 40  # strides from here on are not looked at
_HELPER = "accel_bounds"
_TEXT = "out of bounds: %lld bytes at 0x%llx: byte %lld of '%s', which has %lld (element %lld)"


@dataclass(frozen=True)
class Argument:
    """A pointer among the kernel's arguments: bytes from their beginning to its address, and to its memory's begin and size."""

    name: str
    address: int
    range: int


class Bounds:
    """What is known of a module's addresses."""

    def __init__(self, origins: Mapping[Value, Origin], arguments: Mapping[int, Argument]) -> None:
        self.origins, self.arguments = origins, arguments
        self._limits: dict[tuple[Function, Argument, int], tuple[str, str]] = {}

    def of(self, address: Value) -> list[Argument]:
        """The arguments that an address may come from; none if it may come from elsewhere."""
        return [self.arguments[at] for at in sorted(self.origins.get(address) or ())]

    def limit(self, function: Function, argument: Argument, bytes: int) -> tuple[str, str]:
        """Begin of an argument's memory, and how many bytes behind it ``bytes`` may begin: both read once in a function."""
        key = function, argument, bytes
        if key not in self._limits:
            begin, size = (
                function.once(
                    f"load i64, ptr {function.once(f'getelementptr i8, ptr %arguments, i64 {argument.range + more}')}"
                )
                for more in (0, 8)
            )
            limit = function.once(f"call i64 @llvm.usub.sat.i64(i64 {size}, i64 {bytes - 1})")
            self._limits[key] = begin, limit
        return self._limits[key]


def versions(write: Callable[[Code, Operation], None]) -> Callable[[Code, Operation], None]:
    """How a loop over lanes is written, of how it is written without a thought of bounds."""

    def twice(code: Code, op: Operation) -> None:
        tests = _whole(code, op)
        if not tests:
            write(code, op)
            return
        function = code.function
        places = [(base(value.type), function.alloca(base(value.type))) for value in op.results]

        def version(trusted: frozenset[Operation]) -> None:
            code.trusted = trusted
            write(code, op)
            code.trusted = None
            for value, (type, place) in zip(op.results, places):
                function.do(f"store {type} {code.values[value].text}, ptr {place}")

        go = functools.reduce(code.lanes().both, tests.values())
        function.branch(go, lambda: version(frozenset(tests)), lambda: version(frozenset()))
        for value, (type, place) in zip(op.results, places):
            code.values[value] = Lane(function.op(f"load {type}, ptr {place}"))

    return twice


def _whole(code: Code, op: Operation) -> dict[Operation, str]:
    """The accesses of a loop at core level, or in loops inside, whose addresses are known before it, each with an i1: none leaves."""
    if code.bounds is None or code.trusted is not None or code.width:
        return {}
    sizes: dict[Value, int] = {}
    tests: dict[Operation, str] = {}
    for inner in op.walk():
        if inner.name in BODIES:
            dims = attribute(inner, "dims") if inner.name == "loop" else [attribute(inner, "count")]
            sizes.update(zip(inner.regions[0].block.arguments, dims))
            if inner.name == "vscan":
                sizes[inner.regions[2].block.arguments[0]] = dims[0]
        elif inner.name in ACCESSES:
            address = groups(inner)["address"][0]
            arguments = code.bounds.of(address)
            if len(arguments) == 1 and isinstance(address.owner, Operation) and address.owner.name == "access":
                test = _within(code, address.owner, _bytes(inner), arguments[0], sizes)
                if test is not None:
                    tests[inner] = test
    return tests


def _within(code: Code, access: Operation, bytes: int, argument: Argument, sizes: Mapping[Value, int]) -> str | None:
    """Whether all addresses of an affine access are in an argument's memory, as an i1; None if its parts are not known yet."""
    named = groups(access)
    parts = [*named["base"], *named["offset"], *named["strides"]]
    if not all(part in code.values for part in parts) or not all(index in sizes for index in named["indices"]):
        return None
    e = code.lanes(False)
    start, offset, *strides = (code.values[part].text for part in parts)
    low, span, small = offset, "0", ""
    for stride, text, index in zip(named["strides"], strides, named["indices"]):
        if constant(stride) is None:  # what follows must not wrap
            moved = e.binary("add", "i64", text, str(_LONG))
            one = e.compare("icmp ult", "i64", moved, str(2 * _LONG))
            small = e.both(small, one) if small else one
        reach = e.binary("mul", "i64", text, str(sizes[index] - 1))
        low = e.binary("add", "i64", low, e.op(f"call i64 @llvm.smin.i64(i64 {reach}, i64 0)"))
        span = e.binary("add", "i64", span, e.op(f"call i64 @llvm.abs.i64(i64 {reach}, i1 false)"))
    assert code.bounds is not None
    begin, limit = code.bounds.limit(code.function, argument, bytes)
    first = e.binary("add", "i64", start, e.binary("mul", "i64", low, str(bytes)))
    first = e.binary("sub", "i64", first, begin)
    last = e.binary("add", "i64", first, e.binary("mul", "i64", span, str(bytes)))
    inside = e.both(*(e.compare("icmp ult", "i64", place, limit) for place in (first, last)))
    return e.both(inside, small) if small else inside


def _bytes(op: Operation) -> int:
    """Of the element of an access."""
    (value,) = groups(op).get("value") or op.results
    return size(elem_of(value.type))


def checked(code: Code, op: Operation) -> list[Argument]:
    """The arguments whose memory an operation may not leave; none if it is no access, or one that needs no check."""
    if op.name not in ACCESSES or not code.bounds or op in (code.trusted or ()):
        return []
    return code.bounds.of(groups(op)["address"][0])


def check(code: Code, op: Operation, place: Lane, mask: str = "") -> None:
    """Ends the program with a fault if a lane of ``op``, which is at ``place``, leaves its memory. ``mask`` is a vector of i1; "" all."""
    arguments = checked(code, op)
    if not arguments:
        return
    bytes, function = _bytes(op), code.function
    each = place.vector and not place.first
    e, at = code.lanes(each), place.first or place.text
    inside = ""
    for argument in arguments:
        assert code.bounds is not None
        begin, limit = code.bounds.limit(function, argument, bytes * (code.width if place.first else 1))
        offset = e.binary("sub", "i64", at, e.splat("i64", begin))
        one = e.compare("icmp ult", "i64", offset, e.splat("i64", limit))
        inside = e.binary("or", "i1", inside, one) if inside else one
    outside = e.binary("xor", "i1", inside, e.const("i1", 1))
    if each:
        outside = e.any(e.both(outside, mask) if mask else outside)
    with function.when(outside):
        _look(code, op, arguments, bytes, place, mask)


def _look(code: Code, op: Operation, arguments: list[Argument], bytes: int, place: Lane, mask: str) -> None:
    """Looks at each lane: some may be masked."""
    function, wide = code.function, code.lanes(place.vector)
    lanes = place.text
    held = function.alloca(wide.type("i64"))
    function.do(f"store {wide.type('i64')} {lanes}, ptr {held}")
    bits = str((1 << (code.width if place.vector else 1)) - 1)
    if mask:
        packed = function.op(f"bitcast {wide.type('i1')} {mask} to i{code.width}")
        bits = function.op(f"zext i{code.width} {packed} to i32")
    code.module.helper(_HELPER, lambda: _helper(code.module))
    table = _table(code.module, arguments, bytes)
    site = code.site(op.location)
    given = f"ptr %context, ptr %arguments, ptr @{table}, i32 {site}, ptr {held}, i32 {bits}"
    wrong = function.op(f"call i1 @{_HELPER}({given})")
    with function.when(wrong):
        control.leave(code, str(control.FAULT))


def _table(module: Module, arguments: list[Argument], bytes: int) -> str:
    """A constant: bytes of an element, number of arguments, and of each its places and name."""
    rows = []
    for argument in arguments:
        data = argument.name.encode() + b"\0"
        name = f"accel_name.{argument.address}"
        text = "".join(f"\\{byte:02X}" for byte in data)
        module.helper(name, lambda: f'@{name} = private constant [{len(data)} x i8] c"{text}"')  # noqa: B023 -- called here
        rows.append(f"{{ i64, i64, ptr }} {{ i64 {argument.address}, i64 {argument.range}, ptr @{name} }}")
    table = f"accel_memory.{bytes}." + ".".join(str(argument.address) for argument in arguments)
    type = f"[{len(rows)} x {{ i64, i64, ptr }}]"
    module.helper(
        table,
        lambda: (
            f"@{table} = private constant {{ i64, i64, {type} }} "
            f"{{ i64 {bytes}, i64 {len(rows)}, {type} [{', '.join(rows)}] }}"
        ),
    )
    return table


def _helper(module: Module) -> str:
    """i1 (context, arguments, table, site, addresses of lanes, bits of lanes): writes the fault of the first lane that has one."""
    parameters = [("ptr", f"%{name}") for name in ("context", "arguments", "table")]
    parameters += [("i32", "%site"), ("ptr", "%lanes"), ("i32", "%bits")]
    function = Function(module, _HELPER, parameters, "i1", "internal", "cold noinline")
    module.parts.setdefault(f"{PREFIX}snprintf", f"declare i32 @{PREFIX}snprintf(ptr, i64, ptr, ...) nounwind")
    data = _TEXT.encode() + b"\0"
    text = "".join(f"\\{byte:02X}" for byte in data)
    module.helper("accel_bounds_text", lambda: f'@accel_bounds_text = private constant [{len(data)} x i8] c"{text}"')
    left, nearest, least = function.alloca("i32"), function.alloca("ptr"), function.alloca("i64")
    found = function.alloca("i1")

    def read(type: str, base: str, index: str) -> str:
        return function.op(f"load {type}, ptr {function.op(f'getelementptr i8, ptr {base}, i64 {index}')}")

    def distance(row: str, address: str) -> tuple[str, str, str]:
        """Byte of the argument's memory, how many there are, and how far away the memory is."""
        at = read("i64", row, "8")
        begin = read("i64", "%arguments", at)
        count = read("i64", "%arguments", function.op(f"add i64 {at}, 8"))
        offset = function.op(f"sub i64 {address}, {begin}")
        before = function.op(f"icmp slt i64 {offset}, 0")
        far = [function.op(f"sub i64 0, {offset}"), function.op(f"sub i64 {offset}, {count}")]
        return offset, count, function.op(f"select i1 {before}, i64 {far[0]}, i64 {far[1]}")

    function.do(f"store i32 %bits, ptr {left}")
    bytes = read("i64", "%table", "0")
    rows = read("i64", "%table", "8")
    first = function.op("getelementptr i8, ptr %table, i64 16")
    function.do("br label %head")
    function.label("head")
    bits = function.op(f"load i32, ptr {left}")
    function.do(f"br i1 {function.op(f'icmp eq i32 {bits}, 0')}, label %right, label %lane")
    function.label("lane")
    lane = function.op(f"zext i32 {function.op(f'call i32 @llvm.cttz.i32(i32 {bits}, i1 true)')} to i64")
    rest = function.op(f"sub i32 {bits}, 1")
    function.do(f"store i32 {function.op(f'and i32 {bits}, {rest}')}, ptr {left}")
    address = function.op(f"load i64, ptr {function.op(f'getelementptr i64, ptr %lanes, i64 {lane}')}")
    function.do(f"store i64 {2**63 - 1}, ptr {least}")
    function.do(f"store i1 false, ptr {found}")
    with function.loop("0", rows) as index:
        row = function.op(f"getelementptr {{ i64, i64, ptr }}, ptr {first}, i64 {index}")
        offset, count, far = distance(row, address)
        limit = function.op(f"call i64 @llvm.usub.sat.i64(i64 {count}, i64 {function.op(f'sub i64 {bytes}, 1')})")
        with function.when(function.op(f"icmp ult i64 {offset}, {limit}")):
            function.do(f"store i1 true, ptr {found}")
        with function.when(function.op(f"icmp slt i64 {far}, {function.op(f'load i64, ptr {least}')}")):
            function.do(f"store i64 {far}, ptr {least}")
            function.do(f"store ptr {row}, ptr {nearest}")
    function.do(f"br i1 {function.op(f'load i1, ptr {found}')}, label %head, label %wrong")
    function.label("wrong")
    row = function.op(f"load ptr, ptr {nearest}")
    offset, count, _ = distance(row, address)
    pointer = read("i64", "%arguments", read("i64", row, "0"))
    element = function.op(f"sdiv i64 {function.op(f'sub i64 {address}, {pointer}')}, {bytes}")
    name = read("ptr", row, "16")
    place = write_fault(function, OUT_OF_BOUNDS, "%site")
    numbers = f"i64 {bytes}, i64 {address}, i64 {offset}, ptr {name}, i64 {count}, i64 {element}"
    function.op(
        f"call i32 (ptr, i64, ptr, ...) @{PREFIX}snprintf(ptr {place}, i64 {TEXT}, ptr @accel_bounds_text, {numbers})"
    )
    function.do("ret i1 true")
    function.label("right")
    function.do("ret i1 false")
    return function.text()
