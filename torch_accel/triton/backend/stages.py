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
from ..ir import printer, reader, text, verify
from ..ir.core import IRError, Location, Operation
from ..machine import verify as machine_verify
from ..machine.ops import MACHINE
from . import accesses, checks


class Staged(str):
    """What a stage shows in the cache, with what the next stage needs.

    A stage that is given a plain text instead reads it: Triton puts the file of ``TRITON_KERNEL_OVERRIDE`` in a stage's place.
    """

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
    lowered = frontend.lowered(reader.read(frontend.generic(module)), strict=metadata["strict"])
    _describe(lowered, metadata)
    return Staged(printer.text(lowered), lowered)


def _machine(tile: str, metadata: dict[str, Any]) -> Staged:
    if isinstance(tile, Staged):
        module = tile.value
    else:
        module = text.parse(tile)
        verify.verify(module)
        _describe(module, metadata)
    return _compiled(codegen.compile_module, module, metadata)


def _llir(machine: str, metadata: dict[str, Any]) -> Staged:
    if not isinstance(machine, Staged):
        module = text.parse(machine, MACHINE)
        machine_verify.verify(module)
        machine = _compiled(codegen.compile_machine, module, metadata)
    return Staged(machine.value.llvm_text, machine.value)


def _object(llir: str, metadata: dict[str, Any]) -> bytes:
    return bytes(llir.value.object if isinstance(llir, Staged) else llvm.assemble(llir, llvm.target()))


def _describe(module: Operation, metadata: dict[str, Any]) -> None:
    """What the launcher has to know of a module of the tile IR."""
    name = _entry(module)
    modes = accesses.of(module, name)
    before = metadata.get("accesses", modes)
    if len(modes) != len(before):
        raise IRError(f"'{name}' has {len(modes)} arguments, and launches pass {len(before)}")
    metadata["name"], metadata["accesses"] = name, modes
    checks.refuse_waiting(module, metadata["order"])
    deep = checks.INTERPRETED.intersection(metadata["check"])
    metadata["interpreted"] = printer.text(module, locations=True) if deep else ""


def _compiled(compile: Callable[..., codegen.CompiledKernel], module: Operation, metadata: dict[str, Any]) -> Staged:
    compiled = compile(module, name=metadata["name"], target=llvm.target(), bounds="oob" in metadata["check"])
    metadata["shared"] = compiled.sram
    metadata["sites"] = [_site(location) for location in compiled.locations]
    return Staged(compiled.machine_text, compiled)


STAGES: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "ttir": _ttir,
    "tile": _tile,
    "machine": _machine,
    "llir": _llir,
    "object": _object,
}


@functools.cache
def read_overrides() -> None:
    """Lets Triton read files of our two IRs, for ``TRITON_KERNEL_OVERRIDE`` and ``ir_override``. Checked on Triton 3.7."""
    from triton.compiler import compiler

    usual = compiler.parse
    compiler.parse = lambda path, ext, context: (
        Path(path).read_text() if ext in ("tile", "machine") else usual(path, ext, context)
    )


def _entry(module: Operation) -> str:
    """The kernel among a module's functions."""
    return next(
        op.attributes["name"] for op in module.walk() if op.name == "func" and op.attributes.get("public", True)
    )


def _site(location: Location) -> str:
    """Where a fault is reported: the line of the innermost function that the user wrote, and where that was called."""
    here = f"{location.file}:{location.line}" if location.file else "an unknown line"
    return here + (f" (called from {_site(location.caller)})" if location.caller else "")
