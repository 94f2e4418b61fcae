"""Reads the tile IR's own text, as ``printer.text`` writes it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .core import UNKNOWN, Block, Location, Operation, Region, Value
from .ops import OPERATORS, Operator
from .printer import LITERALS
from .scanner import NUMBER, VALUE, WORD, Scanner, bits_of_text, pattern
from .types import FLOAT_WIDTHS, Buf, Constant, Ptr, Scalar, Tile, Token, Type, View, element

_SCALAR = pattern(rf"(?:i\d+|{'|'.join(sorted(FLOAT_WIDTHS, key=len, reverse=True))})\b")
_DIMENSION = pattern(r"(\d+)x")
_INTEGER = pattern(r"\d+")
_NAME = pattern(r"[A-Za-z_]\w*")
_KEY = pattern(r"[A-Za-z_]\w*(?==)")
_PRIMARY = pattern(r"[\w$]+")
_BOOL = pattern(r"(?:true|false)\b")
_SIGNED = pattern(r"-?\d+")
_ATTRIBUTES = re.compile(r"\s*\{[A-Za-z_]\w* = ")
_END = pattern(r"\Z")
_PLACE = re.compile(r"^@(\d+) = ", re.M)


def parse(text: str, operators: Mapping[str, Operator] = OPERATORS) -> Operation:
    """The module of a text. Raises SyntaxError, which shows the line."""
    return _Text(text, operators).module()


class _Text(Scanner):
    def __init__(self, text: str, operators: Mapping[str, Operator]) -> None:
        self.operators = operators
        table = _PLACE.search(text)
        body, places = (text[: table.start()], text[table.start() :]) if table else (text, "")
        super().__init__(places, "the tile IR's places")
        self.places: dict[int, Location] = {}
        callers: dict[int, int] = {}
        while self.take("@"):
            number = int(self.need(_INTEGER, "a number"))
            self.expect("=")
            file = self.string() or ""
            self.expect(":")
            line = int(self.need(_INTEGER, "a line"))
            self.expect(":")
            column = int(self.need(_INTEGER, "a column"))
            self.places[number] = Location(file, line, column, self.string() or "")
            if self.take("from"):
                self.expect("@")
                callers[number] = int(self.need(_INTEGER, "a number"))
        # A caller has a lower number than who it calls.
        for number, caller in callers.items():
            old = self.places[number]
            self.places[number] = Location(old.file, old.line, old.column, old.name, self.places[caller])
        super().__init__(body, "the tile IR")
        self.values: dict[str, Value] = {}

    def module(self) -> Operation:
        block = Block()
        while self.take("func"):
            block.append(self.function())
        if self.match(_END) is None:
            self.fail("a function")
        return Operation("module", regions=[Region([block])])

    def function(self) -> Operation:
        self.expect("@")
        name = self.string() or self.need(WORD, "a name")
        self.values = {}
        block = Block()
        self.expect("(")
        self.arguments(block)
        returns = []
        if self.take("->"):
            self.expect("(")
            returns = self.many(self.type, ")")
        attributes = self.attributes()
        self.expect("{")
        location = self.place()
        self.block(block)
        attributes |= {"name": name} | ({"returns": returns} if returns else {})
        return Operation("func", attributes=attributes, regions=[Region([block])], location=location)

    def arguments(self, block: Block) -> None:
        def argument() -> None:
            name = self.need(VALUE, "an argument")
            self.expect(":")
            value = Value(self.type(), block)
            self.define(name, value)
            block.arguments.append(value)

        self.many(argument, ")")

    def define(self, name: str, value: Value) -> None:
        if name in self.values:
            self.fail(f"a new name instead of {name}")  # of an argument, or of a value in the operation's own regions
        value.name = "" if name[1:].isdigit() else re.sub(r"\.\d+$", "", name[1:])
        self.values[name] = value

    def block(self, block: Block) -> None:
        while not self.take("}"):
            block.append(self.operation())

    def operation(self) -> Operation:
        start = self.at
        names = []
        while name := self.match(VALUE):
            names.append(name)
            if name in self.values:
                self.at = start
                self.fail(f"a new name instead of {name}")
            if not self.take(","):
                self.expect("=")
                break
        name = self.need(_NAME, "an operation")
        spec = self.operators.get(name) or self.fail(f"an operator instead of '{name}'")
        if name in LITERALS:
            return self.finish(Operation(name), names, self.constant())
        attributes: dict[str, Any] = {}
        if spec.primary:
            self.expect(".")
            attributes[spec.primary] = self.need(_PRIMARY, spec.primary)
        self.expect("(")
        operands, segments = self.operands([name for name, _ in spec.groups])
        attributes |= self.attributes()
        operation = Operation(name, operands, attributes=attributes, segments=segments)
        return self.finish(operation, names, None)

    def finish(self, operation: Operation, names: list[str], numbers: list[str] | None) -> Operation:
        types = []
        if names:
            self.expect(":")
            types = [self.type()]
            while self.take(","):
                types.append(self.type())
        if len(types) != len(names):
            self.fail(f"{len(names)} result types")
        operation.results = [Value(type, operation) for type in types]
        if numbers is not None:
            type = Tile(types[0].shape, types[0].elem) if isinstance(types[0], Buf) else types[0]
            elem = element(type)
            assert isinstance(elem, Scalar)
            operation.attributes["value"] = Constant(type, tuple(bits_of_text(number, elem) for number in numbers))
        for index in range(self.operators[operation.name].regions):
            self.expect("{")
            if index == 0:
                operation.location = self.place()
            block = Block()
            if self.take("^("):
                self.arguments(block)
                self.expect(":")
            self.block(block)
            region = Region([block])
            region.parent = operation
            operation.regions.append(region)
        if not operation.regions:
            operation.location = self.place()
        # Defined after the regions: they do not see the results.
        for name, value in zip(names, operation.results):
            self.define(name, value)
        return operation

    def constant(self) -> list[str]:
        item = lambda: self.need(NUMBER, "a number")  # noqa: E731
        return self.many(item, "]") if self.take("[") else [item()]

    def operands(self, names: list[str]) -> tuple[list[Value], tuple[int, ...] | None]:
        found: list[Value] = []
        sizes = dict.fromkeys(names, 0)
        named = False

        def use() -> Value:
            name = self.need(VALUE, "a value")
            return self.values.get(name) or self.fail(f"a definition of {name} before its use")

        def item() -> None:
            nonlocal named
            key = self.match(_KEY)
            if key is None:
                sizes[names[min(len(found), len(names) - 1)]] += 1
                found.append(use())
                return
            named = True
            if key not in sizes:
                self.fail(f"one of {', '.join(names)}")
            self.expect("=")
            values = self.many(use, "]") if self.take("[") else [use()]
            sizes[key] = len(values)
            found.extend(values)

        self.many(item, ")")
        return found, tuple(sizes.values()) if named else None

    def attributes(self) -> dict[str, Any]:
        # `{` after an operation begins its attributes if a name and `=` follow, and a region otherwise.
        if not _ATTRIBUTES.match(self.text, self.at):
            return {}
        self.expect("{")

        def entry() -> tuple[str, Any]:
            key = self.need(_NAME, "an attribute")
            self.expect("=")
            return key, self.attribute()

        return dict(self.many(entry, "}"))

    def attribute(self) -> Any:
        text = self.string()
        if text is not None:
            return text
        word = self.match(_BOOL)
        if word:
            return word == "true"
        if self.take("type "):
            return self.type()
        if self.take("["):
            return self.many(self.attribute, "]")
        if self.take("{"):

            def entry() -> tuple[str, Any]:
                key = self.string() or self.fail("a key")
                self.expect(":")
                return key, self.attribute()

            return dict(self.many(entry, "}"))
        return int(self.need(_SIGNED, "an attribute"))

    def type(self) -> Type:
        name = self.match(_SCALAR)
        if name:
            return Scalar(name)
        if self.take("token"):
            return Token()
        if self.take("ptr<"):
            elem = self.type()
            self.expect(",")
            space = self.need(_NAME, "a memory space")
            self.expect(">")
            return Ptr(elem, space)
        for word, make in (("tile<", Tile), ("view<", View), ("buf<", Buf)):
            if self.take(word):
                shape = []
                while size := self.match(_DIMENSION):
                    shape.append(int(size[:-1]))
                elem = self.type()
                assert isinstance(elem, (Scalar, Ptr))
                more: list[Any] = []
                while make is Buf and self.take(","):
                    more.append(int(self.need(_INTEGER, "bytes")) if len(more) == 2 else self.need(_PRIMARY, "a word"))
                self.expect(">")
                return make(tuple(shape), elem, *more)  # type: ignore[arg-type]
        self.fail("a type")

    def place(self) -> Location:
        if not self.take("@"):
            return UNKNOWN
        return self.places[int(self.need(_INTEGER, "a place"))]
