"""Reads text by patterns from the left: what the readers of Triton's IR and of the tile IR share."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from .floats import bits_of, encode
from .types import Scalar

_T = TypeVar("_T")
# Each way to match it differs in its first character: a pattern that fails after it does not try many.
_BLANKS = r"\s*(?://[^\n]*(?:\n\s*|\Z))*"
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2}|.)")


def pattern(text: str) -> re.Pattern[str]:
    """What ``Scanner.match`` takes: a regular expression, with the blanks and comments that may come before it."""
    return re.compile(f"{_BLANKS}({text})")


NUMBER = pattern(r"-?0x[0-9A-Fa-f]+|-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|-?inf|nan")
WORD = pattern(r"[A-Za-z_][\w$.]*")
VALUE = pattern(r"%[\w$.\-]+")
_NOTHING = pattern("")
_STRING = pattern(r'"(?:[^"\\]|\\.)*"')
_literal = functools.cache(lambda literal: pattern(re.escape(literal)))


class Scanner:
    """A text and a position in it. Blanks and comments before anything that is read are skipped."""

    def __init__(self, text: str, what: str) -> None:
        self.text, self.at, self.what = text, 0, what
        self._known: defaultdict[str, dict[str, Any]] = defaultdict(dict)

    def fail(self, expected: str) -> NoReturn:
        """Raises SyntaxError that shows the line."""
        self.match(_NOTHING)  # to where the next text begins
        start = self.text.rfind("\n", 0, self.at) + 1
        line = self.text[start : (self.text.find("\n", self.at) + 1 or len(self.text) + 1) - 1]
        number = self.text.count("\n", 0, self.at) + 1
        raise SyntaxError(f"accel: {self.what}, line {number}: expected {expected} at {line[self.at - start :]!r}")

    def match(self, pattern: re.Pattern[str]) -> str | None:
        """The text that the pattern matches here, consumed; None if it does not."""
        found = pattern.match(self.text, self.at)
        if found is None:
            return None
        self.at = found.end()
        return found[1]

    def remembered(self, extent: re.Pattern[str], parse: Callable[[], _T]) -> _T:
        """``parse()``, or what it gave for the same text before. ``extent`` matches the text that it will read, if it is short."""
        found = extent.match(self.text, self.at)
        known = self._known[extent.pattern]
        if found is not None and found[0] in known:
            self.at = found.end()
            return known[found[0]]
        value = parse()
        if found is not None and self.at == found.end():
            known[found[0]] = value
        return value

    def take(self, literal: str) -> bool:
        """Consumes a literal if it is here."""
        return self.match(_literal(literal)) is not None

    def need(self, pattern: re.Pattern[str], expected: str) -> str:
        """What the pattern matches, which must be here."""
        found = self.match(pattern)
        return found if found is not None else self.fail(expected)

    def expect(self, literal: str) -> None:
        """Consumes a literal, which must be here."""
        if not self.take(literal):
            self.fail(f"'{literal}'")

    def string(self) -> str | None:
        """A quoted string without its quotes, or None."""
        found = self.match(_STRING)
        if found is None:
            return None
        return _ESCAPE.sub(
            lambda m: chr(int(m[1], 16)) if len(m[1]) == 2 else {"n": "\n", "t": "\t"}.get(m[1], m[1]), found[1:-1]
        )

    def many(self, item: Callable[[], _T], close: str) -> list[_T]:
        """Items between commas up to the closing literal, which is consumed."""
        items: list[_T] = []
        if self.take(close):
            return items
        while True:
            items.append(item())
            if self.take(close):
                return items
            self.expect(",")


def quote(text: str) -> str:
    """A string as ``Scanner.string`` reads it."""
    return '"' + re.sub(r'[\\"\n]', lambda m: "\\n" if m[0] == "\n" else "\\" + m[0], text) + '"'


def bits_of_text(text: str, elem: Scalar) -> int:
    """The bits of a number's text in an element type; hexadecimal text of a float is its bits."""
    import numpy as np

    if text in ("true", "false"):
        return int(text == "true")
    mask = (1 << elem.width) - 1
    if elem.is_float and not text.lower().startswith("0x"):
        return bits_of(elem, encode(elem, np.array(float(text))))[0]
    return int(text, 0) & mask


def signed(bits: int, width: int) -> int:
    """A pattern as a signed number; i1 stays 0 or 1."""
    return bits - (1 << width) if width > 1 and bits >> (width - 1) else bits


__all__ = ["NUMBER", "VALUE", "WORD", "Scanner", "bits_of_text", "pattern", "quote", "signed"]
