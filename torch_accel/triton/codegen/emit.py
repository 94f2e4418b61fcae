"""LLVM IR as text. Values that change are allocas, which LLVM's sroa turns into registers: no phi is made by hand."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator, Sequence

from .llvm import Target

FLOATS = {"half": "f16", "float": "f32", "double": "f64"}


class Module:
    """Functions by name, and helpers that are made once, at their first use."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.parts: dict[str, str] = {}
        self.bodies: dict[str, str] = {}  # names of shared functions

    def declare(self, name: str, result: str, arguments: Sequence[str]) -> None:
        """A function of the C library."""
        self.parts.setdefault(name, f"declare {result} @{name}({', '.join(arguments)}) nounwind")

    def helper(self, name: str, make: Callable[[], str]) -> None:
        """A function or constant of the module's own."""
        if name not in self.parts:
            self.parts[name] = ""  # keeps its place before what it needs
            self.parts[name] = make()

    def shared(self, prefix: str, function: Function) -> str:
        """Adds a function that has no name yet, unless there is one with the same text; gives the name."""
        text = function.text()
        if text not in self.bodies:
            function.name = self.bodies[text] = f"{prefix}{len(self.bodies)}"
            function.finish()
        return self.bodies[text]

    def text(self) -> str:
        """The module, as LLVM reads it."""
        return "\n".join([*self.parts.values(), f"attributes #0 = {{ {self.target.attributes} }}", ""])


class Function:
    """A function under construction; ``finish`` adds it to its module."""

    def __init__(
        self,
        module: Module,
        name: str,
        parameters: Sequence[tuple[str, str]],
        result: str = "void",
        linkage: str = "",
        attributes: str = "",
    ) -> None:
        self.module, self.name, self.result = module, name, result
        self.linkage, self.attributes = linkage, attributes
        self.parameters = list(parameters)
        self.allocas: list[str] = []
        self.head: list[str] = []
        self.lines: list[str] = []
        self.count = 0

    def fresh(self, hint: str = "v") -> str:
        """A name that the function does not have yet."""
        self.count += 1
        return f"{hint}{self.count}"

    def op(self, text: str) -> str:
        """An instruction with a result; gives its name."""
        name = f"%{self.fresh()}"
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """An instruction without a result."""
        self.lines.append(f"  {text}")

    def alloca(self, type: str) -> str:
        """A place for a value, at the function's beginning."""
        name = f"%{self.fresh('p')}"
        self.allocas.append(f"  {name} = alloca {type}")
        return name

    def once(self, text: str) -> str:
        """An instruction with a result, at the function's beginning: of parameters and of others there."""
        name = f"%{self.fresh('h')}"
        self.head.append(f"  {name} = {text}")
        return name

    def label(self, name: str) -> None:
        """Begins a block; the one before has to have ended."""
        self.lines.append(f"{name}:")

    @contextlib.contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """Instructions that run only if an i1 holds."""
        then, end = self.fresh("then"), self.fresh("end")
        self.do(f"br i1 {condition}, label %{then}, label %{end}")
        self.label(then)
        yield
        self.do(f"br label %{end}")
        self.label(end)

    def branch(self, condition: str, yes: Callable[[], None], no: Callable[[], None]) -> None:
        """Instructions for an i1 that holds, and for one that does not."""
        labels = [self.fresh(hint) for hint in ("yes", "no", "end")]
        self.do(f"br i1 {condition}, label %{labels[0]}, label %{labels[1]}")
        for label, write in zip(labels, (yes, no)):
            self.label(label)
            write()
            self.do(f"br label %{labels[2]}")
        self.label(labels[2])

    @contextlib.contextmanager
    def loop(self, start: str, stop: str, step: str = "1", type: str = "i64") -> Iterator[str]:
        """For index = start; index < stop (signed); index += step. Gives the index."""
        place, head, body, end = self.alloca(type), *(self.fresh(hint) for hint in ("head", "body", "end"))
        self.do(f"store {type} {start}, ptr {place}")
        self.do(f"br label %{head}")
        self.label(head)
        index = self.op(f"load {type}, ptr {place}")
        go = self.op(f"icmp slt {type} {index}, {stop}")
        self.do(f"br i1 {go}, label %{body}, label %{end}")
        self.label(body)
        yield index
        more = self.op(f"add {type} {index}, {step}")
        self.do(f"store {type} {more}, ptr {place}")
        self.do(f"br label %{head}")
        self.label(end)

    def text(self) -> str:
        """The whole function: its last block must end with ret."""
        head = ", ".join(f"{type} {name}" for type, name in self.parameters)
        words = ["define", self.linkage, self.result, f"@{self.name}({head})", self.attributes, "#0 {"]
        return "\n".join([" ".join(filter(None, words)), "entry:", *self.allocas, *self.head, *self.lines, "}"])

    def finish(self) -> None:
        """Adds the function to its module."""
        self.module.parts[self.name] = self.text()


class Lanes:
    """Writes instructions on vectors of ``count`` elements, or on single elements (``count`` 0).

    Operands and results are names or constants as text; a type is named by its element ("float", "i32").
    """

    def __init__(self, function: Function, count: int) -> None:
        self.function, self.count = function, count

    @property
    def whole_register(self) -> bool:
        """Whether the lanes of a float32 fill a register of AVX-512."""
        return self.count == 16 and self.function.module.target.avx512

    def type(self, base: str) -> str:
        """The vector type of an element type."""
        return f"<{self.count} x {base}>" if self.count else base

    def suffix(self, base: str) -> str:
        """How intrinsics name the type."""
        name = FLOATS.get(base, base)
        return f"v{self.count}{name}" if self.count else name

    def op(self, text: str) -> str:
        """An instruction of any form."""
        return self.function.op(text)

    def const(self, base: str, value: float) -> str:
        """A number in every lane; of an integer its bits count."""
        if base in FLOATS:
            text = float_text(base, value)
        else:
            width = int(base[1:])
            bits = int(value) & (1 << width) - 1
            text = ("true" if bits else "false") if base == "i1" else str(bits - (bits >> (width - 1) << width))
        return f"splat ({base} {text})" if self.count else text

    def splat(self, base: str, value: str) -> str:
        """A single value in every lane."""
        if not self.count:
            return value
        one = self.op(f"insertelement {self.type(base)} poison, {base} {value}, i64 0")
        zeros = f"<{self.count} x i32> zeroinitializer"
        return self.op(f"shufflevector {self.type(base)} {one}, {self.type(base)} poison, {zeros}")

    def binary(self, name: str, base: str, a: str, b: str) -> str:
        """An instruction of two operands, such as "fadd"."""
        return self.op(f"{name} {self.type(base)} {a}, {b}")

    def compare(self, name: str, base: str, a: str, b: str) -> str:
        """ "icmp slt" or "fcmp olt" and so on: an i1."""
        return self.binary(name, base, a, b)

    def select(self, condition: str, base: str, a: str, b: str) -> str:
        """a where the condition holds, else b."""
        return self.op(f"select {self.type('i1')} {condition}, {self.type(base)} {a}, {self.type(base)} {b}")

    def convert(self, name: str, old: str, new: str, value: str) -> str:
        """ "sext", "fpext", "bitcast" and so on; nothing if the types are one."""
        if old == new:
            return value
        return self.op(f"{name} {self.type(old)} {value} to {self.type(new)}")

    def call(self, name: str, base: str, *values: str, extra: str = "") -> str:
        """An intrinsic of operands of one type, which is the result's; ``extra`` is a further operand with its type."""
        given = ", ".join([f"{self.type(base)} {value}" for value in values] + ([extra] if extra else []))
        return self.op(f"call {self.type(base)} @llvm.{name}.{self.suffix(base)}({given})")

    def both(self, a: str, b: str) -> str:
        """Of two i1."""
        return self.binary("and", "i1", a, b)

    def any(self, mask: str) -> str:
        """Whether an i1 holds in some lane: a single i1."""
        if not self.count:
            return mask
        return self.op(f"call i1 @llvm.vector.reduce.or.{self.suffix('i1')}({self.type('i1')} {mask})")


def float_text(base: str, value: float) -> str:
    """A number as LLVM reads it, exactly: in hexadecimal."""
    if base == "half":
        return f"0xH{int.from_bytes(struct.pack('>e', value), 'big'):04X}"
    if base == "float":
        value = struct.unpack("f", struct.pack("f", value))[0]
    return f"0x{int.from_bytes(struct.pack('>d', value), 'big'):016X}"
