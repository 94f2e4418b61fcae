"""`device_print`: lines in Triton's form, on the process's standard output as CUDA's printf does, not on Python's."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ..ir.core import Operation, Value
from ..ir.types import Buf, Ptr, Scalar, element
from ..machine.ops import attribute
from .emit import Lanes
from .formats import base, decode
from .libm import PREFIX
from .memory import load, memory_base
from .values import Code, elem_of


def print_(code: Code, op: Operation) -> None:
    """A line for each element of each operand."""
    function = code.function
    prefix = attribute(op, "prefix").replace("%", "%%")
    signs = attribute(op, "signed")
    code.module.parts.setdefault(f"{PREFIX}printf", f"declare i32 @{PREFIX}printf(ptr, ...) nounwind")
    code.module.declare(f"{PREFIX}fflush", "i32", ["ptr"])
    if not op.operands:
        _line(code, prefix, [])
    for at, value in enumerate(op.operands):
        number = f"(operand {at}) " if len(op.operands) > 1 else ""
        dims = value.type.shape if isinstance(value.type, Buf) else ()
        with contextlib.ExitStack() as stack:
            places = [stack.enter_context(function.loop("0", str(size))) for size in dims]
            idx = f" idx ({', '.join(['%lld'] * len(dims))})" if isinstance(value.type, Buf) else ""
            form, argument = _number(code, value, places, attribute(op, "hex"), not signs or bool(signs[at]))
            _line(code, f"{idx}{prefix}{number}{form}", [*(f"i64 {place}" for place in places), argument])
    function.do(f"call i32 @{PREFIX}fflush(ptr null)")


def _number(code: Code, value: Value, places: Sequence[str], hexadecimal: bool, signed: bool) -> tuple[str, str]:
    """The form of an element, and the argument for it."""
    e, elem = Lanes(code.function, 0), elem_of(element(value.type))
    text = code.values[value].text
    if isinstance(value.type, Buf):
        text = load(e, elem, _element(code, value.type, text, places))
    if isinstance(elem, Ptr):
        return "0x%016llx", f"i64 {text}"
    name = base(elem)
    if hexadecimal:
        bits = e.convert("bitcast", name, f"i{elem.width}", text)
        return f"0x%0{max(1, elem.width // 4)}llx", f"i64 {e.convert('zext', f'i{elem.width}', 'i64', bits)}"
    if elem.is_float:
        number = decode(e, elem, text)
        return "%f", f"double {number if name == 'double' else e.convert('fpext', 'float', 'double', number)}"
    signed = signed and elem != Scalar("i1")
    wide = e.convert("sext" if signed else "zext", name, "i64", text)
    return "%lld" if signed else "%llu", f"i64 {wide}"


def _element(code: Code, buf: Buf, start: str, places: Sequence[str]) -> str:
    index = "0"
    for size, place in zip(buf.shape, places):
        index = code.function.op(f"add i64 {code.function.op(f'mul i64 {index}, {size}')}, {place}")
    return code.function.op(f"getelementptr {memory_base(buf.elem)}, ptr {start}, i64 {index}")


def _line(code: Code, form: str, arguments: Sequence[str]) -> None:
    """One call a line: lines of several cores do not mix."""
    data = f"pid (%u, %u, %u){form}\n".encode() + b"\0"
    name = f"accel_text{len(code.module.parts)}"
    bytes = "".join(f"\\{byte:02X}" for byte in data)
    code.module.helper(name, lambda: f'@{name} = private constant [{len(data)} x i8] c"{bytes}"')
    given = ", ".join([f"ptr @{name}", *(f"i32 %program{axis}" for axis in range(3)), *arguments])
    code.function.do(f"call i32 (ptr, ...) @{PREFIX}printf({given})")
