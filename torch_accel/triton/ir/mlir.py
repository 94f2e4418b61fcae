"""MLIR's locations, types and attributes, from text to Python values."""

from __future__ import annotations

import re
from typing import Any

from .core import UNKNOWN, IRError, Location
from .scanner import NUMBER, WORD, Scanner, bits_of_text, pattern
from .types import Constant, Function, Opaque, Ptr, Scalar, Tile, Type, element

_SCALAR = pattern(r"(?:i\d+|bf16|f\d+(?:E\d+M\d+(?:FN|B11)?(?:UZ)?)?|index|none|tf32)\b")
_DIMENSION = pattern(r"\d+x")
INTEGER = pattern(r"\d+")
_ALIAS = re.compile(r"^(#loc\d*) = ", re.M)
LOCATION_REFERENCE = pattern(r"#loc\d*")
_ATTRIBUTE_NAME = pattern(r'[A-Za-z_][\w$.]*|"[^"]*"')
_RANGE_END = pattern(r"(?:\d+)?:\d+")
_WORDS = pattern(r"(?:true|false|unit)\b")
_BOOL = pattern(r"true|false")
_DIALECT_TYPE, _DIALECT_ATTRIBUTE = pattern(r"![\w.]+"), pattern(r"#[\w.]+")
# Up to the next bracket; that of an arrow is none.
_BRACKET = pattern(r'(?:->|"[^"]*"|[^<>"])*?[<>]')
_SPACES = {0: "host", 1: "hbm", 3: "sram"}


class Attributes(Scanner):
    """A text with locations, types and attributes in it."""

    def __init__(self, text: str) -> None:
        super().__init__(text, "Triton's IR")
        self.aliases = {found[1]: found.end() for found in _ALIAS.finditer(text)}
        self.locations: dict[str, Location] = {}

    def location(self) -> Location:
        """`loc(...)`, or nothing."""
        return (
            self.location_body()
            if self.text.startswith(" loc(", self.at) or self.text.startswith("loc(", self.at)
            else UNKNOWN
        )

    def location_body(self) -> Location:
        """`loc(...)`."""
        self.expect("loc(")
        found = self._inner_location()
        self.expect(")")
        return found

    def _inner_location(self) -> Location:
        reference = self.match(LOCATION_REFERENCE)
        if reference:
            return self._resolve(reference)
        text = self.string()
        if text is not None:
            if self.take(":"):
                line = int(self.need(INTEGER, "a line"))
                self.expect(":")
                column = int(self.need(INTEGER, "a column"))
                if self.take("to"):
                    self.match(_RANGE_END)
                return Location(text, line, column)
            child = UNKNOWN
            if self.take("("):
                child = self._inner_location()
                self.expect(")")
            return Location(child.file, child.line, child.column, text, child.caller)
        if self.take("unknown"):
            return UNKNOWN
        if self.take("callsite("):
            callee = self._inner_location()
            self.expect("at")
            caller = self._inner_location()
            self.expect(")")
            return Location(callee.file, callee.line, callee.column, callee.name, _outermost(callee.caller, caller))
        if self.take("fused"):
            if self.take("<"):
                self.attribute()
                self.expect(">")
            self.expect("[")
            parts = self.many(self._inner_location, "]")
            return next((part for part in parts if part.file), UNKNOWN)
        if self.take("loc("):
            found = self._inner_location()
            self.expect(")")
            return found
        self.fail("a location")

    def _resolve(self, alias: str) -> Location:
        if alias not in self.locations:
            if alias not in self.aliases:
                self.fail(f"a definition of {alias}")
            here, self.at = self.at, self.aliases[alias]
            self.locations[alias] = self.location_body()
            self.at = here
        return self.locations[alias]

    def type(self) -> Type:
        """A type."""
        name = self.match(_SCALAR)
        if name:
            return Scalar(name.lower())
        if self.take("tensor<"):
            shape = self._dimensions()
            elem = self.type()
            if self.take(","):
                self.fail("no layout: the IR of a GPU is not read")
            self.expect(">")
            assert isinstance(elem, (Scalar, Ptr))
            return Tile(shape, elem)
        if self.take("!tt.ptr<"):
            elem = self.type()
            space = int(self.need(INTEGER, "a memory space")) if self.take(",") else 1
            self.expect(">")
            return Ptr(elem, _SPACES.get(space, f"space{space}"))
        if self.take("("):
            inputs = self.many(self.type, ")")
            self.expect("->")
            return Function(tuple(inputs), self.types())
        start = self.at
        if self.match(_DIALECT_TYPE):
            self._balanced()
            return Opaque(self.text[start : self.at].strip())
        self.fail("a type")

    def types(self) -> tuple[Type, ...]:
        """One type, or a list in parentheses."""
        return tuple(self.many(self.type, ")")) if self.take("(") else (self.type(),)

    def _dimensions(self) -> tuple[int, ...]:
        shape = []
        while size := self.match(_DIMENSION):
            shape.append(int(size[:-1]))
        return tuple(shape)

    def _balanced(self) -> None:
        """Skips `<...>`, if it is here."""
        if not self.take("<"):
            return
        depth = 1
        while depth:
            token = self.need(_BRACKET, "'>'")
            depth += 1 if token[-1] == "<" else -1

    def attribute(self) -> Any:
        """An attribute: int, bool, float, str, list, dict, type, ``Constant`` (floats, dense), or ``Opaque``."""
        text = self.string()
        if text is not None:
            return text
        word = self.match(_WORDS)
        if word:
            return word != "false"
        number = self.match(NUMBER)
        if number:
            return self._number(number)
        if self.take("["):
            return self.many(self.attribute, "]")
        if self.take("{"):
            return self.dictionary("}")
        if self.take("array<"):
            self.type()
            self.take(":")
            return self.many(self.attribute, ">")
        if self.take("dense<"):
            return self._dense()
        if self.take("@"):
            return self.string() or self.need(WORD, "a symbol")
        start = self.at
        if self.match(_DIALECT_ATTRIBUTE):
            self._balanced()
            return Opaque(self.text[start : self.at].strip())
        if self.text.startswith("loc(", self.at):
            return self.location_body()
        return self.type()

    def _number(self, text: str) -> Any:
        type = self.type() if self.take(":") else None
        if isinstance(type, Scalar) and type.is_float:
            return Constant(type, (bits_of_text(text, type),))
        return float(text) if "." in text else int(text, 0)

    def dictionary(self, close: str) -> dict[str, Any]:
        """Named attributes, up to the closing text."""
        return dict(self.many(self._entry, close))

    def _entry(self) -> tuple[str, Any]:
        name = self.need(_ATTRIBUTE_NAME, "an attribute").strip('"')
        return name, self.attribute() if self.take("=") else True

    def _dense(self) -> Constant:
        texts: list[str] = []
        raw = self.string()
        if raw is None:
            self._elements(texts)
        self.expect(">")
        self.expect(":")
        type = self.type()
        elem = element(type)
        assert isinstance(elem, Scalar) and isinstance(type, Tile)
        if raw is not None:
            return Constant(type, _from_hex(raw, elem, type.count))
        return Constant(type, tuple(bits_of_text(text, elem) for text in texts))

    def _elements(self, into: list[str]) -> None:
        if self.take("["):
            self.many(lambda: self._elements(into), "]")
        else:
            into.append(self.match(_BOOL) or self.need(NUMBER, "a number"))


def _outermost(inner: Location | None, caller: Location) -> Location:
    """A chain of callers: `inner`'s, then `caller`."""
    if inner is None:
        return caller
    return Location(inner.file, inner.line, inner.column, inner.name, _outermost(inner.caller, caller))


def _from_hex(text: str, elem: Scalar, count: int) -> tuple[int, ...]:
    data = bytes.fromhex(text.removeprefix("0x"))
    size = max(elem.width // 8, 1)
    if elem.width == 1 and len(data) != count:
        if count % 8:
            raise IRError(f"a constant of {count} bits is not read")
        return tuple(byte >> bit & 1 for byte in data for bit in range(8))
    return tuple(int.from_bytes(data[i : i + size], "little") for i in range(0, len(data), size))
