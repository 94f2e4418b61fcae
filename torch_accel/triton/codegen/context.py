"""What a program is given: the context of its core, as csrc/driver/accel_grid.h has it, and the record of a fault."""

from __future__ import annotations

import ctypes

from .emit import Function

TEXT = 1024


class Context(ctypes.Structure):
    """accelGridContext."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("offset", ctypes.c_uint64),
        ("program", ctypes.c_uint32 * 3),
        ("grid", ctypes.c_uint32 * 3),
        ("sram", ctypes.c_void_p),
        ("sram_size", ctypes.c_size_t),
        ("abort", ctypes.c_void_p),
        ("fault", ctypes.c_void_p),
        ("wait", ctypes.c_void_p),
    ]


class Fault(ctypes.Structure):
    """accelGridFault."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("kind", ctypes.c_uint32),
        ("program", ctypes.c_uint32 * 3),
        ("site", ctypes.c_uint32),
        ("values", ctypes.c_int64 * 4),
        ("text", ctypes.c_char * TEXT),
    ]


ASSERT, OUT_OF_BOUNDS, OTHER = 1, 2, 3


def field(function: Function, name: str, index: int = 0) -> str:
    """Pointer to a field of the context, or to a number of one that has three."""
    return function.op(f"getelementptr i8, ptr %context, i64 {getattr(Context, name).offset + 4 * index}")


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
        place = function.op(f"getelementptr i8, ptr {record}, i64 {getattr(Fault, name).offset + more}")
        function.do(f"store {type} {value}, ptr {place}, align 1")

    put("kind", str(kind))
    put("site", str(site))
    for axis in range(3):
        put("program", function.op(f"load i32, ptr {field(function, 'program', axis)}"), 4 * axis)
    data = text.encode()[: TEXT - 1] + b"\0"
    data += b"\0" * (-len(data) % 8)
    for start in range(0, len(data), 8):
        put("text", str(int.from_bytes(data[start : start + 8], "little", signed=True)), start, "i64")
    return function.op(f"getelementptr i8, ptr {record}, i64 {Fault.text.offset}")
