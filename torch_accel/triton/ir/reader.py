"""Reads MLIR's generic form, in which all operations look alike, into operations with MLIR's names.

``"op"(operands)[successors] <{properties}> ({regions}) {attributes} : (types) -> types loc(...)``. Nothing here knows an operation
of Triton; attributes come as Python values, and those without a meaning of ours as ``Opaque`` text.
"""

from __future__ import annotations

import re

from .core import Block, Operation, Region, Value
from .mlir import INTEGER, LOCATION_REFERENCE, Attributes
from .scanner import VALUE, pattern
from .types import Function, Opaque

_USE = pattern(r"%[\w$.\-]+(?:#\d+)?")
_BLOCK = pattern(r"\^\w+")
_BLOCK_END = re.compile(r"\s*[}^]")
_PROPERTIES = re.compile(r" <\{[^\n]*?\}>")
_SIGNATURE = re.compile(r"[^\n]*?(?= loc\(|\n|\Z)")
_PLACEHOLDER = Opaque("?")


def read(text: str) -> Operation:
    """The module of a text in MLIR's generic form, as an operation ``builtin.module``.

    Raises SyntaxError, which shows the line, where the text is not in that form.
    """
    if not re.search(r'^"builtin\.module"', text, re.M):
        raise SyntaxError(
            "accel: Triton's IR, line 1: expected the generic form, which begins with '\"builtin.module\"'"
        )
    return _Reader(text).module()


class _Reader(Attributes):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.scopes: list[dict[str, Value]] = []
        self.pending: list[dict[str, Value]] = []

    def module(self) -> Operation:
        while self.match(LOCATION_REFERENCE):  # definitions above the module
            self.expect("=")
            self.location_body()
        self.scopes.append({})
        self.pending.append({})
        return self.operation({})

    def operation(self, blocks: dict[str, Block]) -> Operation:
        names = self.result_names()
        name = self.string()
        if name is None:
            self.fail("an operation")
        self.expect("(")
        operands = [self.use(text) for text in self.many(lambda: self.need(_USE, "a value"), ")")]
        successors = []
        if self.take("["):
            successors = [
                blocks.setdefault(label, Block()) for label in self.many(lambda: self.need(_BLOCK, "a block"), "]")
            ]
        attributes = dict(self.remembered(_PROPERTIES, lambda: self.dictionary("}>") if self.take("<{") else {}))
        regions = self.many(lambda: self.region(isolated=name == "tt.func"), ")") if self.take("(") else []
        if self.take("{"):
            attributes |= self.dictionary("}")
        self.expect(":")
        signature = self.remembered(_SIGNATURE, self.type)
        assert isinstance(signature, Function)
        operation = Operation(
            name, operands, signature.results, attributes, regions, self.location(), successors=successors
        )
        segments = attributes.pop("operandSegmentSizes", None)
        operation.segments = tuple(segments) if segments is not None else None
        operation.attributes.pop("operandSegmentSizes", None)
        if len(operands) != len(signature.inputs):
            self.fail(f"{len(operands)} operand types")
        for value, type in zip(operands, signature.inputs):
            if value.type is _PLACEHOLDER:
                value.type = type
            elif value.type != type:
                self.fail(f"an operand of type {value.type}, which is printed as {type},")
        self.name_results(operation, names)
        return operation

    def result_names(self) -> list[tuple[str, int]]:
        names = []
        while name := self.match(VALUE):
            names.append((name, int(self.need(INTEGER, "a count")) if self.take(":") else 1))
            if not self.take(","):
                self.expect("=")
                break
        return names

    def name_results(self, operation: Operation, names: list[tuple[str, int]]) -> None:
        if sum(count for _, count in names) != len(operation.results):
            self.fail(f"{len(operation.results)} results")
        at = 0
        for name, count in names:
            values = [
                self.define(f"{name}#{i}" if count > 1 else name, operation.results[at + i]) for i in range(count)
            ]
            operation.results[at : at + count] = values
            at += count

    def use(self, name: str) -> Value:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        # A block further down defines it.
        return self.pending[-1].setdefault(name, Value(_PLACEHOLDER, Block()))

    def define(self, name: str, value: Value) -> Value:
        early = self.pending[-1].pop(name, None)
        if early is not None:
            if early.type != value.type:
                self.fail(f"{name} of type {early.type}")
            early.owner, value = value.owner, early
        value.name = hint(name)
        self.scopes[-1][name] = value
        return value

    def region(self, isolated: bool) -> Region:
        outer = self.scopes
        self.scopes = [{}] if isolated else [*self.scopes, {}]
        self.pending.append({})
        region = Region()
        labels: dict[str, Block] = {}
        self.expect("{")
        if not self.take("}"):
            first = True
            while not self.take("}"):
                label = self.match(_BLOCK)
                if label is None and not first:
                    self.fail("a block")
                block = labels.setdefault(label or "^", Block())
                if label:
                    self.block_arguments(block)
                    self.expect(":")
                region.append(block)
                first = False
                while not _BLOCK_END.match(self.text, self.at):
                    block.append(self.operation(labels))
        self.scopes = outer
        unknown = self.pending.pop()
        if unknown:
            if isolated:
                self.fail(f"definitions of {', '.join(unknown)}")
            for name, value in unknown.items():
                self.pending[-1].setdefault(name, value)
        return region

    def block_arguments(self, block: Block) -> None:
        def argument() -> None:
            name = self.need(VALUE, "an argument")
            self.expect(":")
            value = Value(self.type(), block)
            self.location()
            block.arguments.append(self.define(name, value))

        if self.take("("):
            self.many(argument, ")")


def hint(name: str) -> str:
    """The user's part of a value's name: `%x_12` is x, `%7` nothing."""
    word = re.sub(r"#\d+$", "", name[1:])
    word = re.sub(r"(?:[_.]\d+)+$", "", word)
    return (
        ""
        if not re.match(r"[A-Za-z_]", word) or re.fullmatch(r"c?(?:cst|true|false)?|arg\d*|c-?\w*_i\d+", word)
        else word
    )
