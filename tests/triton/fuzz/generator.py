"""Programs from choices: a kernel's statements, with what each value was made of, so that a store says which cells are reached."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from .cells import Cell
from .choices import Choices
from .grammar import ACCESSES, ANY, ATOMICS, MASKS, PAIRS, TYPES, Operator
from .program import Pointer, Program

SHAPES = ((16,), (8, 8), (4, 16), (16, 2), (1, 32), (64,), (128,), (2,), (4, 4, 4), (32, 8))
STATEMENTS, DEPTH = 14, 2
Source = tuple[str, str, str]  # access, mask, argument


@dataclass(frozen=True)
class Value:
    """A tile. ``made``: for each operator on the way to it, the loads that fed it and the control flow around it."""

    name: str
    type: str
    sources: frozenset[Source] = frozenset()
    made: Mapping[tuple[str, str], tuple[frozenset[Source], frozenset[str]]] = field(default_factory=dict)


class Generator:
    """Writes one program."""

    def __init__(self, choices: Choices, seed: int) -> None:
        self.choices, self.program = choices, Program(choices.drawn, seed)
        self.pool: list[Value] = []
        self.unused: list[Value] = []
        self.controls: tuple[str, ...] = ()
        self.indent, self.count, self.left = 0, 0, STATEMENTS
        self.counters: list[str] = []

    # text

    def line(self, text: str) -> None:
        for one in text.split("\n"):
            self.program.lines.append("    " * self.indent + one)

    def name(self, letter: str = "v") -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def run(self) -> Program:
        """The whole kernel."""
        program, choices = self.program, self.choices
        program.shape = shape = choices.pick(SHAPES)
        program.grid = (choices.pick((1, 2, 3)),)
        count = math.prod(shape)
        self.types = [choices.pick(("i32", "f32", *ANY)) for _ in range(2)]
        ones = ["None"] * len(shape)
        parts, turned, apart, stride, back = [], [], [], count, 1
        for axis, size in enumerate(shape):
            stride //= size
            place = ", ".join([*ones[:axis], ":", *ones[axis + 1 :]])
            one = f"tl.arange(0, {size})" + (f"[{place}]" if len(shape) > 1 else "")
            parts.append(f"{one} * {stride}" if stride > 1 else one)
            turned.append(f"{one} * {back}" if back > 1 else one)
            apart.append(f"{one} * {'1' if axis else 's'}")
            back *= size
        self.line("pid = tl.program_id(0)")
        self.line(f"i = {' + '.join(parts)}")
        if len(shape) > 1:
            self.line(f"t = {' + '.join(turned)}")
            self.line(f"d = {' + '.join(apart)}")
        program.scalars = {
            "n": choices.pick((1, 0, 3, count // 2, count - 1, count, 2 * count)),
            "s": choices.pick((1, 2, 3, 0, 5)),
            "first": choices.pick((0, 1, 4, 16)),
            "period": choices.pick((7, 16, 1, count, 2 * count, 100)),
            "trips": choices.pick((1, 2, 3, 0)),
        }
        self.block(0)
        return program

    # values

    def pointer(self, type: str, kind: str = "data", fresh: bool = False) -> Pointer:
        """An argument of a type: one that there is, or a new one, in a memory of its own or in another one's."""
        known = [one for one in self.program.pointers if one.type == type and one.kind == kind]
        if known and not fresh and (kind != "data" or self.choices.draw(3) < 2):
            return self.choices.pick(known)
        name = f"{ {'data': 'p', 'approx': 'e', 'index': 'x', 'flag': 'm'}[kind] }{len(self.program.pointers)}"
        if known and kind == "data" and self.choices.chance(2):
            made = Pointer(name, type, self.choices.pick(known).memory, self.choices.pick((0, 1, 3, 16, 40)))
        else:
            made = Pointer(name, type, len(self.program.memories), kind=kind)
            self.program.memories.append(type)
        self.program.pointers.append(made)
        return made

    def access(self, plain: int = 0) -> tuple[str, str, str, str]:
        """How, the index, its mask's kind, and the mask; contiguous once more often for each of ``plain``."""
        choices = self.choices
        known = [one for one in ACCESSES if one != "transposed" or len(self.program.shape) > 1]
        how = choices.pick([*known[:1] * plain, *known])
        count = math.prod(self.program.shape)
        index = {
            "contiguous": lambda: "i",
            "strided": lambda: choices.pick(("i * 2", "i * s", "i * 3", f"({count - 1} - i)", *["d"] * (len(self.program.shape) > 1))),
            "transposed": lambda: choices.pick(("t", "t * 2", "t * s")),
            "gathered": lambda: f"tl.load({self.pointer('i32', 'index').name} + i)",
            "modulo": lambda: choices.pick(("i % period", "(i + first) % period", "(i * 3) % period", f"(i + first) % {max(count // 2, 1)}")),
        }[how]()  # fmt: skip
        moved = ["", f"pid * {count}", "3", "first", "pid", *(f"{one} * 5" for one in self.counters)]
        offset = choices.pick(moved)
        index = f"{offset} + {index}" if offset else index
        if choices.chance(8):
            index = f"({index}).to(tl.int64)"
        kind = choices.pick(MASKS)
        mask = {
            "no mask": lambda: "",
            "prefix": lambda: choices.pick(("i < n", f"i + pid * {count} < n", "i <= n", "n > i")),
            "arbitrary": lambda: choices.pick((f"tl.load({self.pointer('i1', 'flag').name} + i)", "i % 3 != 1", self.flag())),
        }[kind]()  # fmt: skip
        return how, index, kind, mask

    def flag(self) -> str:
        known = [one.name for one in self.pool if one.type == "i1"]
        return self.choices.pick(known) if known else "(i & 5) != 4"

    def load(self, type: str) -> Value:
        pointer = self.pointer(type)
        pointer.loaded = True
        how, index, kind, mask = self.access()
        more = f", mask={mask}" if mask else ""
        if mask and self.choices.chance(2):
            known = [one.name for one in self.pool if one.type == type]
            options = ["0", "1", *known] if not type.startswith("f8") else [*known]
            more += f", other={self.choices.pick(options)}" if options else ""
        if self.choices.chance(16):
            more += ", volatile=True"
        name = self.name()
        self.line(f"{name} = tl.load({pointer.name} + {index}{more})")
        source = frozenset([(how, kind, pointer.name)])
        value = Value(name, type, source, {("load", type): (source, frozenset(self.controls))})
        return self.put(value)

    def put(self, value: Value) -> Value:
        self.pool.append(value)
        self.unused.append(value)
        return value

    def operand(self, type: str, others: Sequence[Value] = ()) -> Value:
        """A value that there is, or one that is loaded; none of ``others``: of an operator's equal operands Triton's passes leave nothing."""
        known = [one for one in self.pool if one.type == type and one not in others]
        value = self.choices.pick(known) if known and self.choices.draw(4) < 3 else self.load(type)
        self.unused = [one for one in self.unused if one is not value]
        return value

    def merged(self, name: str, type: str, parts: Sequence[Value], operator: tuple[str, str] | None = None) -> Value:
        """A value that is made of others."""
        made: dict[tuple[str, str], tuple[frozenset[Source], frozenset[str]]] = {}
        for one in parts:
            for key, (sources, controls) in one.made.items():
                old = made.get(key, (frozenset(), frozenset()))
                made[key] = (old[0] | sources, old[1] | controls)
        sources = frozenset().union(*(one.sources for one in parts))
        if operator is not None:
            old = made.get(operator, (frozenset(), frozenset()))
            made[operator] = (old[0] | sources, old[1] | frozenset(self.controls))
        return Value(name, type, sources, made)

    def operator(self, one: Operator, type: str) -> None:
        """A statement with an operator."""
        shape, name = self.program.shape, self.name()
        count, axis = math.prod(shape), self.choices.draw(len(shape)) if "{A}" in one.text else 0
        parts = dict[str, Value]()
        for letter in "abc":
            if f"{{{letter}}}" in one.text:
                parts[letter] = self.operand(type, list(parts.values()))
        if one.second:
            parts["w"] = self.operand(one.second)
        rows = self.choices.pick([size for size in (1, 2, 4, 8, 16) if count % size == 0]) if "{P}" in one.text else 1
        result, tl_type = one.result or type, TYPES[type][0]
        self.line(
            one.text.format(
                v=name, S=shape, C=count, P=rows, Q=count // rows, A=axis, L=shape[axis], i="i", t=tl_type,
                u=tl_type.replace(".int", ".uint") if ".int" in tl_type else TYPES[result][0].replace(".int", ".uint"), r=TYPES[result][0],
                **{letter: value.name for letter, value in parts.items()},
            )
        )  # fmt: skip
        value = self.merged(name, result, list(parts.values()), (one.name, type))
        if one.approximate:
            self.store(value, self.pointer(result, "approx"))
        else:
            self.put(value)
            if result != type and self.choices.chance(2):
                self.back(value, parts["a"])

    def back(self, value: Value, like: Value) -> None:
        """A value as one of the operand's type, so that it may be stored where the operand is from."""
        self.unused.remove(value)
        name, type = self.name(), TYPES[like.type][0]
        if value.type == "i1":
            self.line(f"{name} = tl.where({value.name}, {like.name}, 1)")
        else:
            self.line(f"{name} = {value.name}.to({type})")
        self.put(self.merged(name, like.type, [value]))

    def store(self, value: Value, pointer: Pointer | None = None) -> None:
        self.unused = [one for one in self.unused if one is not value]
        loaded = [one for one in self.program.pointers if one.type == value.type and one.kind == "data" and one.loaded]
        if pointer is None:
            names = {name for _, _, name in value.sources}
            loaded = [one for one in loaded if one.name in names] or loaded
            pointer = self.choices.pick(loaded) if loaded and self.choices.chance(2) else self.pointer(value.type)
        how, index, kind, mask = self.access(plain=2)
        self.line(f"tl.store({pointer.name} + {index}, {value.name}{f', mask={mask}' if mask else ''})")
        here = frozenset(self.controls)
        made = {**value.made, ("store", value.type): (value.sources, here)}
        for (operator, type), (sources, controls) in made.items():
            for access, of, name in {*sources, (how, kind, "")}:
                alias = _alias(name, sources, pointer)
                for control in controls | here:
                    self.program.cells.add(Cell(operator, type, access, of, alias, control))

    def atomic(self) -> None:
        choices = self.choices
        kind = choices.pick(list(ATOMICS))
        type = choices.pick(ATOMICS[kind])
        values = [self.operand(type) for _ in range(2 if kind == "cas" else 1)]
        loaded = [one for one in self.program.pointers if one.type == type and one.kind == "data" and one.loaded]
        pointer = choices.pick(loaded) if loaded and choices.chance(2) else self.pointer(type)
        how, index, of, mask = self.access()
        if kind == "cas":
            of, mask = "no mask", ""
        given = ", ".join(value.name for value in values)
        name, call = self.name(), kind.removeprefix("f").removeprefix("u")
        if kind.startswith("u"):
            given = f"{given}.to(tl.uint{type[1:]}, bitcast=True)"
        where = f"{pointer.name} + {index}"
        if kind.startswith("u"):
            where = f"({where}).to(tl.pointer_type(tl.uint{type[1:]}), bitcast=True)"
        back = f".to({TYPES[type][0]}, bitcast=True)" if kind.startswith("u") else ""
        self.line(f"{name} = tl.atomic_{call}({where}, {given}{f', mask={mask}' if mask else ''}){back}")
        sources = frozenset().union(*(value.sources for value in values))
        for access, mask_kind, argument in {*sources, (how, of, "")}:
            for control in self.controls:
                self.program.cells.add(
                    Cell(f"atomic-{kind}", type, access, mask_kind, _alias(argument, sources, pointer), control)
                )
        if choices.chance(2):
            self.put(self.merged(name, type, values))

    # control flow

    def block(self, depth: int) -> None:
        """Statements; in the end all values are stored that nothing else uses."""
        outer, self.unused = self.unused, []
        self.statement(depth)
        while self.left > 0 and self.choices.draw(8):
            self.statement(depth)
        for value in list(self.unused):
            self.store(value)
        self.unused = outer

    def statement(self, depth: int) -> None:
        self.left -= 1
        kinds: list[Callable[[], None]] = [self.plain] * (3 if depth == 0 else 9) + [self.kept, self.atomic]
        if depth < DEPTH:
            kinds += [lambda: self.loop(depth), lambda: self.condition(depth), lambda: self.waiting(depth)]
        if depth == 0 and "early return" not in self.controls:
            kinds += [self.early] * 2
        self.choices.pick(kinds)()

    def plain(self) -> None:
        pairs = [(one, type) for one, type in PAIRS if type in self.types] if self.choices.draw(4) < 2 else PAIRS
        self.operator(*self.choices.pick(pairs))

    def kept(self) -> None:
        type = self.choices.pick(self.types)
        self.store(self.operand(type))

    def scalar(self) -> str:
        """A condition."""
        loops = [f"{one} % 2 == 0" for one in self.counters]
        flag = f"tl.load({self.pointer('i1', 'flag').name} + pid)" if self.choices.chance(4) else "n < 9"
        return self.choices.pick(["pid == 0", "n > 3", "pid != 1", "trips == 2", flag, *loops])

    def early(self) -> None:
        self.line(f"if {self.scalar()}:\n    return")
        self.controls = (*self.controls, "early return")

    def carried(self) -> list[Value]:
        """Values that a loop or a condition changes, with names of their own."""
        found = []
        for _ in range(self.choices.pick((1, 2, 0))):
            value = self.operand(self.choices.pick(self.types))
            name = self.name("c")
            self.line(f"{name} = {value.name}")
            found.append(self.merged(name, value.type, [value]))
        self.pool += found
        return found

    def inside(self, depth: int, control: str, carried: list[Value], end: str = "") -> list[Value]:
        """A block in which the carried values are set anew, all at once."""
        pool, controls = self.pool, self.controls
        self.pool, self.controls = list(pool), tuple(dict.fromkeys((*controls, control)))
        self.indent += 1
        self.block(depth + 1)
        given = [self.choices.pick([each for each in reversed(self.pool) if each.type == one.type]) for one in carried]
        if carried:
            self.line(f"{', '.join(one.name for one in carried)} = {', '.join(one.name for one in given)}")
        new = [self.merged(one.name, one.type, [one, value]) for one, value in zip(carried, given)]
        if end:
            self.line(end)
        self.indent -= 1
        self.pool, self.controls = pool, controls
        return new

    def leave(self, carried: list[Value], new: list[list[Value]]) -> None:
        """After it: the carried values have what went into each way."""
        for at, one in enumerate(carried):
            self.pool.remove(one)
            self.put(self.merged(one.name, one.type, [one, *(way[at] for way in new)]))

    def loop(self, depth: int) -> None:
        carried, counter = self.carried(), self.name("k")
        bounds = self.choices.pick(("trips", "0, 2", "1, 7, 2", "trips, 0, -1", "pid, 2", "0, trips, 2", "n, n + 2"))
        self.line(f"for {counter} in range({bounds}):")
        self.counters.append(counter if bounds != "n, n + 2" else f"({counter} - n)")
        new = self.inside(depth, "for", carried)
        self.counters.pop()
        self.leave(carried, [new])

    def waiting(self, depth: int) -> None:
        carried, counter = self.carried(), self.name("w")
        more = self.choices.pick(("", f"({counter} < 1) | (n > 3)"))
        self.line(f"{counter} = 0\nwhile {f'({counter} < trips) & ({more})' if more else f'{counter} < trips'}:")
        self.counters.append(counter)
        new = self.inside(depth, "while", carried, f"{counter} += 1")
        self.counters.pop()
        self.leave(carried, [new])

    def condition(self, depth: int) -> None:
        carried = self.carried()
        self.line(f"if {self.scalar()}:")
        new = [self.inside(depth, "if", carried)]
        if self.choices.chance(2):
            self.line("else:")
            new.append(self.inside(depth, "if", carried))
        self.leave(carried, new)


def _alias(argument: str, sources: frozenset[Source], pointer: Pointer) -> str:
    """Of the store itself: in place if it goes to an argument that is loaded."""
    names = {argument} if argument else {name for _, _, name in sources}
    return "in place" if pointer.name in names else "may alias"


def generate(seed: int, choices: Sequence[int] | None = None) -> Program:
    """The program of a seed, or of choices with the seed's data."""
    return Generator(Choices(seed if choices is None else None, choices or ()), seed).run()
