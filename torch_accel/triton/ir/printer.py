"""Prints the tile IR; ``text.parse`` reads it back, and prints the same.

func @add(%x: ptr<f32, hbm>, %n: i32) {
  %0 = const 64 : i32
  %pid = program_id() : i32
  %1 = elementwise.muli(%pid, %0) : i32
  ...
  return()
}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from .core import UNKNOWN, Block, Location, Operation, Value
from .floats import bits_of, decode, encode, from_bits
from .ops import OPERATORS, REQUIRED, Operator, groups
from .scanner import quote, signed
from .types import Constant, Function, Opaque, Ptr, Scalar, Tile, View, element

LITERALS = ("const", "data")  # their value is printed as numbers, and its type is the result's


def text(module: Operation, locations: bool = False, operators: Mapping[str, Operator] = OPERATORS) -> str:
    """The module's text. ``locations`` adds ``@n`` to operations, with a table of places at the end."""
    printer = _Printer(locations, operators)
    for operation in module.regions[0].block.operations:
        printer.function(operation)
    return "\n".join(printer.lines + printer.table()) + "\n"


class _Printer:
    def __init__(self, locations: bool, operators: Mapping[str, Operator]) -> None:
        self.operators = operators
        self.lines: list[str] = []
        self.names: dict[Value, str] = {}
        self.used: dict[str, int] = {}
        self.places: dict[Location, int] | None = {} if locations else None

    def name(self, value: Value) -> str:
        if value not in self.names:
            # A hint stands alone the first time, and with a number from then on.
            count = self.used.get(value.name, 0)
            self.used[value.name] = count + 1
            self.names[value] = f"%{value.name}.{count}" if value.name and count else f"%{value.name or count}"
        return self.names[value]

    def arguments(self, block: Block) -> str:
        return ", ".join(f"{self.name(value)}: {value.type}" for value in block.arguments)

    def function(self, op: Operation) -> None:
        self.names, self.used = {}, {}
        attributes = {key: value for key, value in op.attributes.items() if key not in ("name", "returns")}
        returns = op.attributes.get("returns", ())
        arrow = f" -> ({', '.join(map(str, returns))})" if returns else ""
        body = op.regions[0].block
        known = self.attributes("func", attributes)
        self.lines.append(
            f"func @{symbol(op.attributes['name'])}({self.arguments(body)}){arrow}{known} {{{self.place(op)}"
        )
        self.block(body, "  ")
        self.lines.append("}")

    def block(self, block: Block, indent: str) -> None:
        for operation in block.operations:
            self.operation(operation, indent)

    def operation(self, op: Operation, indent: str) -> None:
        spec = self.operators[op.name]
        uses = self.operands(op)
        results = ", ".join(self.name(value) for value in op.results)
        line = indent + (f"{results} = " if results else "") + op.name
        attributes = op.attributes
        if op.name in LITERALS:
            line += f" {constant(attributes['value'])}"
        else:
            line += (f".{attributes[spec.primary]}" if spec.primary else "") + f"({uses})"
            line += self.attributes(op.name, {k: v for k, v in attributes.items() if k != spec.primary})
        if op.results:
            line += " : " + ", ".join(str(value.type) for value in op.results)
        if not op.regions:
            self.lines.append(line + self.place(op))
            return
        for index, region in enumerate(op.regions):
            place = self.place(op) if index == 0 else ""
            opening = f" {{{place}" if index == 0 else "} {"
            self.lines.append((line if index == 0 else indent) + opening)
            if region.block.arguments:
                self.lines.append(f"{indent}  ^({self.arguments(region.block)}):")
            self.block(region.block, indent + "  ")
        self.lines.append(indent + "}")

    def operands(self, op: Operation) -> str:
        parts = []
        kinds = dict(self.operators[op.name].groups)
        many = sum(kind == "*" for kind in kinds.values()) > 1
        for group, values in groups(op, self.operators).items():
            names = [self.name(value) for value in values]
            if kinds[group] == "?" and names:
                parts.append(f"{group}={names[0]}")
            elif kinds[group] == "*" and many:
                parts.append(f"{group}=[{', '.join(names)}]")
            else:
                parts += names
        return ", ".join(parts)

    def attributes(self, name: str, attributes: dict[str, Any]) -> str:
        defaults = self.operators[name].attributes
        shown = [
            f"{key} = {attribute_text(value)}"
            for key, value in sorted(attributes.items())
            if defaults.get(key, REQUIRED) is REQUIRED or _plain(value) != _plain(defaults[key])
        ]
        return f" {{{', '.join(shown)}}}" if shown else ""

    def place(self, op: Operation) -> str:
        return f" @{self.number(op.location)}" if self.places is not None and op.location != UNKNOWN else ""

    def number(self, location: Location) -> int:
        assert self.places is not None
        if location.caller is not None:
            self.number(location.caller)
        return self.places.setdefault(location, len(self.places))

    def table(self) -> list[str]:
        lines = []
        for location, number in (self.places or {}).items():
            caller = f" from @{self.number(location.caller)}" if location.caller is not None else ""
            name = f" {quote(location.name)}" if location.name else ""
            lines.append(f"@{number} = {quote(location.file)}:{location.line}:{location.column}{name}{caller}")
        return lines


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def attribute_text(value: Any) -> str:
    """An attribute as ``text.parse`` reads it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(attribute_text, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{quote(k)}: {attribute_text(v)}' for k, v in sorted(value.items()))}}}"
    if isinstance(value, (Scalar, Ptr, Tile, View, Function, Opaque)):
        return f"type {value}"
    raise TypeError(f"accel: an attribute of type {type(value).__name__} cannot be printed")


def constant(value: Constant) -> str:
    """A constant's numbers; a float that has no short text, such as NaN, as its bits."""
    elem = element(value.type)
    assert isinstance(elem, Scalar)
    numbers = [number(bits, elem) for bits in value.bits]
    return numbers[0] if len(numbers) == 1 else f"[{', '.join(numbers)}]"


def number(bits: int, elem: Scalar) -> str:
    """The text of one element."""
    if not elem.is_float:
        return str(signed(bits, elem.width))
    stored = from_bits(elem, [bits])
    decoded = decode(elem, stored)
    if not np.isfinite(decoded[0]):
        return f"0x{bits:0{elem.width // 4}X}"
    shown = repr(float(decoded[0])) if elem.name == "f64" else str(np.float32(decoded[0]))
    back = bits_of(elem, encode(elem, np.array([float(shown)])))[0]
    return shown if back == bits else f"0x{bits:0{elem.width // 4}X}"


def symbol(name: str) -> str:
    """A function's name, in quotes where it is more than a word."""
    return name if re.fullmatch(r"[A-Za-z_][\w$.]*", name) else quote(name)
