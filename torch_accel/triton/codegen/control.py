"""Control flow of a program: branches, loops, calls; and what stops it, asserts and aborts."""

from __future__ import annotations

from collections.abc import Sequence

from ..analysis.polling import polls
from ..ir.core import Operation, Value
from ..machine.ops import attribute
from .context import ASSERT, field, write_fault
from .formats import base
from .values import Code, Lane, parameter

# What a function returns but 0.
FAULT, ABORTED = 1, 2
PAUSES = 100  # turns of a waiting loop before it yields


def _places(code: Code, values: Sequence[Value]) -> list[tuple[str, str]]:
    """LLVM type and place of each."""
    names = [base(value.type) for value in values]
    return [(name, code.function.alloca(name)) for name in names]


def _keep(code: Code, places: Sequence[tuple[str, str]], values: Sequence[Value]) -> None:
    """Values to places, all at once: each is read before the first is written."""
    for (name, place), value in zip(places, values):
        code.function.do(f"store {name} {code.values[value].text}, ptr {place}")


def _take(code: Code, places: Sequence[tuple[str, str]]) -> list[Lane]:
    return [Lane(code.function.op(f"load {name}, ptr {place}")) for name, place in places]


def if_(code: Code, op: Operation) -> None:
    """Two blocks; results go through allocas."""
    places = _places(code, op.results)

    def region(index: int) -> None:
        _keep(code, places, code.block(op.regions[index].block, ()).operands)

    code.function.branch(code.values[op.operands[0]].text, lambda: region(0), lambda: region(1))
    code.values.update(zip(op.results, _take(code, places)))


def for_(code: Code, op: Operation) -> None:
    """The index is compared by what is left to the limit, so that it never wraps."""
    function, name = code.function, base(op.operands[0].type)
    lower, upper, step = (code.values[value].text for value in op.operands[:3])
    places = _places(code, op.operands[3:])
    _keep(code, places, op.operands[3:])
    place = function.alloca(name)
    head, end = function.fresh("head"), function.fresh("end")
    function.do(f"store {name} {lower}, ptr {place}")
    some = function.op(f"icmp {'ult' if attribute(op, 'unsigned') else 'slt'} {name} {lower}, {upper}")
    function.do(f"br i1 {some}, label %{head}, label %{end}")
    function.label(head)
    index = function.op(f"load {name}, ptr {place}")
    terminator = code.block(op.regions[0].block, [Lane(index), *_take(code, places)])
    _keep(code, places, terminator.operands)
    function.do(f"store {name} {function.op(f'add {name} {index}, {step}')}, ptr {place}")
    more = function.op(f"icmp ugt {name} {function.op(f'sub {name} {upper}, {index}')}, {step}")
    function.do(f"br i1 {more}, label %{head}, label %{end}")
    function.label(end)
    code.values.update(zip(op.results, _take(code, places)))


def while_(code: Code, op: Operation) -> None:
    """The condition comes first. At the back edge the program looks whether it is aborted, and leaves; a loop that waits gives way."""
    function = code.function
    turns = function.alloca("i64") if polls(op) else ""
    if turns:
        function.do(f"store i64 0, ptr {turns}")
    before, after = (region.block for region in op.regions)
    carried, passed = _places(code, before.arguments), _places(code, after.arguments)
    head, body, end = (function.fresh(hint) for hint in ("head", "body", "end"))
    _keep(code, carried, op.operands)
    function.do(f"br label %{head}")
    function.label(head)
    condition = code.block(before, _take(code, carried))
    go, *values = condition.operands
    _keep(code, passed, values)
    function.do(f"br i1 {code.values[go].text}, label %{body}, label %{end}")
    function.label(body)
    _keep(code, carried, code.block(after, _take(code, passed)).operands)
    _leave_if_aborted(code)
    if turns:
        _wait(code, op, turns)
    function.do(f"br label %{head}")
    function.label(end)
    code.values.update(zip(op.results, _take(code, passed)))


def _leave_if_aborted(code: Code) -> None:
    function = code.function
    word = function.op(f"load ptr, ptr {field(function, 'abort')}")
    stop = function.op(f"icmp ne i32 {function.op(f'load volatile i32, ptr {word}')}, 0")
    with function.when(stop):
        leave(code, str(ABORTED))


def _wait(code: Code, op: Operation, turns: str) -> None:
    """A pause for the core's other thread; after some turns the driver gives the core to others, and ends a wait that is in vain."""
    function = code.function
    count = function.op(f"add i64 {function.op(f'load i64, ptr {turns}')}, 1")
    function.do(f"store i64 {count}, ptr {turns}")

    def pause() -> None:
        if code.module.target.x86:
            function.do("call void @llvm.x86.sse2.pause()")

    def wait() -> None:
        call = function.op(f"load ptr, ptr {field(function, 'wait')}")
        given = f"ptr %context, i32 {code.site(op.location)}, i64 {count}"
        stuck = function.op(f"icmp ne i32 {function.op(f'call i32 {call}({given})')}, 0")
        with function.when(stuck):
            leave(code, str(FAULT))

    function.branch(function.op(f"icmp ule i64 {count}, {PAUSES}"), pause, wait)


def leave(code: Code, status: str) -> None:
    """Returns from here; a block that nothing reaches follows."""
    code.function.do(f"ret i32 {status}")
    code.function.label(code.function.fresh("dead"))


def call(code: Code, op: Operation) -> None:
    """Results come through pointers; the callee's frame lies behind this one's."""
    function, frame = code.function, -(-code.frame // 64) * 64
    places = _places(code, op.results)
    below = function.op(f"getelementptr i8, ptr %frame, i64 {frame}")
    given = [f"{parameter(value.type)} {code.values[value].text}" for value in op.operands]
    arguments = ", ".join(
        ["ptr %context", "ptr %arguments", f"ptr {below}", *given, *(f"ptr {place}" for _, place in places)]
    )
    status = function.op(f"call i32 @{inner_name(attribute(op, 'callee'))}({arguments})")
    with function.when(function.op(f"icmp ne i32 {status}, 0")):
        leave(code, status)
    code.values.update(zip(op.results, _take(code, places)))


def inner_name(name: str) -> str:
    """The symbol of a function that programs call."""
    return f'"accel_fn.{name}"'


def returns(code: Code, op: Operation, targets: Sequence[str]) -> None:
    """Results to their places, and status 0."""
    for value, target in zip(op.operands, targets):
        code.function.do(f"store {base(value.type)} {code.values[value].text}, ptr {target}")
    code.function.do("ret i32 0")


def assert_(code: Code, op: Operation) -> None:
    """A lane that does not hold writes the fault record, and ends the program."""
    function, lane = code.function, code.values[op.operands[0]]
    e = code.lanes(lane.vector)
    bad = e.binary("xor", "i1", lane.text, e.const("i1", 1))
    with function.when(e.any(bad)):
        write_fault(function, ASSERT, code.site(op.location), f"device_assert: {attribute(op, 'message')}")
        leave(code, str(FAULT))
