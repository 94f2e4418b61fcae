"""What a program is given: the context of its core, as csrc/driver/accel_grid.h has it, and the record of a fault."""

from __future__ import annotations

from .emit import Function

# Bytes from the beginning of accelGridContext.
CONTEXT = {"offset": 8, "program": 16, "grid": 28, "sram": 40, "sram_size": 48, "abort": 56, "fault": 64, "wait": 72}
BYTES = 80
# Bytes from the beginning of accelGridFault.
FAULT = {"kind": 8, "program": 12, "site": 24, "values": 32, "text": 64}
TEXT = 1024
ASSERT, OUT_OF_BOUNDS, OTHER = 1, 2, 3


def field(function: Function, name: str, index: int = 0) -> str:
    """Pointer to a field of the context, or to a number of one that has three."""
    return function.op(f"getelementptr i8, ptr %context, i64 {CONTEXT[name] + 4 * index}")


def read(function: Function) -> None:
    """Names what a function's instructions take for granted: the distance to the core's own addresses, the program and the grid."""
    function.do(f"%offset = load i64, ptr {field(function, 'offset')}")
    for axis in range(3):
        function.do(f"%program{axis} = load i32, ptr {field(function, 'program', axis)}")
        function.do(f"%grid{axis} = load i32, ptr {field(function, 'grid', axis)}")


def write_fault(function: Function, kind: int, site: int | str, text: str = "") -> str:
    """Writes the record of a fault: kind, program, place in the source and text (cut to fit). Gives the text's place."""
    record = function.op(f"load ptr, ptr {field(function, 'fault')}")

    def put(name: str, value: str, more: int = 0, type: str = "i32") -> None:
        place = function.op(f"getelementptr i8, ptr {record}, i64 {FAULT[name] + more}")
        function.do(f"store {type} {value}, ptr {place}, align 1")

    put("kind", str(kind))
    put("site", str(site))
    for axis in range(3):
        put("program", function.op(f"load i32, ptr {field(function, 'program', axis)}"), 4 * axis)
    data = text.encode()[: TEXT - 1] + b"\0"
    data += b"\0" * (-len(data) % 8)
    for start in range(0, len(data), 8):
        put("text", str(int.from_bytes(data[start : start + 8], "little", signed=True)), start, "i64")
    return function.op(f"getelementptr i8, ptr {record}, i64 {FAULT['text']}")
