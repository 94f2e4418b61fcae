"""The compiler as Triton runs it: stages from its IR to an object, whose texts its cache keeps beside it."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from ... import __version__
from .. import codegen, frontend
from ..codegen import llvm
from ..ir import lower_ttir, printer, reader, verify
from ..ir.core import Location, Operation
from . import accesses, checks


class Staged(str):
    """What a stage shows in the cache, with what the next stage needs."""

    value: Any

    def __new__(cls, text: str, value: Any) -> Staged:
        made = super().__new__(cls, text)
        made.value = value
        return made


def parse_options(given: dict[str, Any]) -> frontend.Options:
    """The options of a launch; what is None or no option of ours is left at its default. ValueError for an unknown check or order."""
    known = {field.name for field in fields(frontend.Options)}
    chosen = {name: value for name, value in given.items() if name in known and value is not None}
    return frontend.Options(
        **{**chosen, "check": checks.wanted(given.get("check")), "order": checks.order(given.get("order"))}
    )


@functools.cache
def fingerprint() -> str:
    """Another compiler or another host makes other objects."""
    digest = hashlib.sha256(f"{__version__}:{llvm.target().key}".encode())
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _ttir(module: Any, metadata: dict[str, Any]) -> Any:
    frontend.run_passes(module)
    return module


def _tile(module: Any, metadata: dict[str, Any]) -> Staged:
    """Triton has stored the module's text by now: it may be spoilt."""
    lowered = lower_ttir.lower(reader.read(frontend.generic(module)))
    verify.verify(lowered)
    metadata["name"] = _entry(lowered)
    checks.refuse_waiting(lowered, metadata["order"])
    metadata["accesses"] = accesses.of(lowered, metadata["name"])
    deep = checks.INTERPRETED.intersection(metadata["check"])
    metadata["interpreted"] = printer.text(lowered, locations=True) if deep else ""
    return Staged(printer.text(lowered), lowered)


def _machine(tile: Staged, metadata: dict[str, Any]) -> Staged:
    compiled = codegen.compile_module(
        tile.value, name=metadata["name"], target=llvm.target(), bounds="oob" in metadata["check"]
    )
    metadata["name"] = compiled.symbol
    metadata["shared"] = compiled.sram
    metadata["sites"] = [_site(location) for location in compiled.locations]
    return Staged(compiled.machine_text, compiled)


def _llir(machine: Staged, metadata: dict[str, Any]) -> Staged:
    return Staged(machine.value.llvm_text, machine.value)


def _object(llir: Staged, metadata: dict[str, Any]) -> bytes:
    return bytes(llir.value.object)


STAGES: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "ttir": _ttir,
    "tile": _tile,
    "machine": _machine,
    "llir": _llir,
    "object": _object,
}


def _entry(module: Operation) -> str:
    """The kernel among a module's functions."""
    return next(
        op.attributes["name"] for op in module.walk() if op.name == "func" and op.attributes.get("public", True)
    )


def _site(location: Location) -> str:
    """Where a fault is reported: the line of the innermost function that the user wrote, and where that was called."""
    here = f"{location.file}:{location.line}" if location.file else "an unknown line"
    return here + (f" (called from {_site(location.caller)})" if location.caller else "")
