"""Makes a failing program smaller: its list of choices, from which each try is generated anew, so that it is always a program."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .check import Different, check
from .generator import generate
from .program import Program


def failure(program: Program, native: bool = True) -> str:
    """How a program fails, or "": the level that differs, or the error and where it was raised."""
    try:
        check(program, native)
    except Different as different:
        return f"another result in {different.level}"
    except Exception as error:  # whatever a compiler may raise
        at = error.__traceback__
        while at is not None and at.tb_next is not None:
            at = at.tb_next
        return f"{type(error).__name__} in {at.tb_frame.f_code.co_name if at else '?'}"
    return ""


def minimised(program: Program, fails: Callable[[Program], bool], tries: int = 400) -> Program:
    """The smallest program found that still ``fails``, in at most ``tries`` runs."""
    best, tried, seen = program, 0, set()
    progress = True
    while progress:
        progress = False
        for choices in _smaller(list(best.choices)):
            if tuple(choices) in seen:
                continue
            seen.add(tuple(choices))
            one = generate(program.seed, choices)
            if (len(one.lines), len(one.choices), one.choices) >= (len(best.lines), len(best.choices), best.choices):
                continue
            tried += 1
            if tried > tries:
                return best
            if fails(one):
                best, progress = one, True
                break
    return best


def _smaller(choices: list[int]) -> Iterator[list[int]]:
    """Without some neighbours, the longer stretches first; then with one of them less."""
    length = max(1, len(choices) // 2)
    while length:
        for start in range(0, len(choices), max(1, length // 2)):
            yield choices[:start] + choices[start + length :]
        length //= 2
    for at, number in enumerate(choices):
        for less in {0, number // 2, number - 1} - {number, -1}:
            yield [*choices[:at], less, *choices[at + 1 :]]
