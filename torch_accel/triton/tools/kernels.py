"""Kernels in a user's file, and what is known of their parameters, by words of a command line."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TYPES = (
    *("i1", "i8", "i16", "i32", "i64", "u1", "u8", "u16", "u32", "u64"),
    *("fp16", "bf16", "fp32", "fp64", "fp8e5", "fp8e4nv", "fp8e4b8", "fp8e5b16"),
)


class UsageError(Exception):
    """Words that name no kernel, or do not fit it; the text says what would."""


def load(words: str) -> Any:
    """The ``@triton.jit`` function of "file.py:function"; the function may be left out where the file has one.

    The file runs as a module. What it raises is passed on; raises UsageError where there is no such function.
    """
    file, _, name = words.partition(":")
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"accel: there is no file '{file}'")
    found = _functions(_module(path))
    if name in found:
        return found[name]
    known = ", ".join(f"{file}:{one}" for one in found) or "none: it has no function under @triton.jit"
    if name or not found:
        raise UsageError(f"accel: '{file}' has no kernel '{name}'; it has {known}")
    if len(found) > 1:
        raise UsageError(f"accel: '{file}' has {len(found)} functions under @triton.jit; name one of {known}")
    return next(iter(found.values()))


def _module(path: Path) -> Any:
    """The module of a file, whose imports see its folder as they do when Python runs it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"accel: '{path}' is no Python file; its name must end with .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


def _functions(module: Any) -> dict[str, Any]:
    """The module's own kernels, without the autotuners and heuristics around them."""
    from triton.runtime.jit import JITFunction, KernelInterface

    found = {}
    for name, value in vars(module).items():
        while isinstance(value, KernelInterface) and not isinstance(value, JITFunction):
            value = value.fn
        if isinstance(value, JITFunction) and value.fn.__module__ == module.__name__:
            found[name] = value
    return found


def parameters(
    kernel: Any, signature: Sequence[str], constants: Sequence[str]
) -> tuple[dict[str, str], dict[str, Any], dict[tuple[int, ...], Any]]:
    """``frontend.ttir``'s signature, constants and attributes, of words such as "x=*fp32:16", "n=i32" and "B=1024".

    ":16" says that 16 divides the address or number, as Triton finds out at a launch. A parameter that the words leave out has its default.
    Raises UsageError, which names the parameter.
    """
    name, known = kernel.fn.__name__, {parameter.name: parameter for parameter in kernel.params}
    types: dict[str, str] = {}
    attributes: dict[tuple[int, ...], Any] = {}
    for parameter, word in _named(name, known, signature, "--signature"):
        match = re.fullmatch(rf"(\**k?(?:{'|'.join(TYPES)}))(?::(\d+))?", word)
        if not match:
            raise UsageError(
                f"accel: type '{word}' of parameter '{parameter}' is unknown; expected one of {' '.join(TYPES)}, "
                f"with * before it for a pointer, and :16 behind it if 16 divides it"
            )
        types[parameter] = match[1]
        if match[2]:
            attributes[list(known).index(parameter),] = [["tt.divisibility", int(match[2])]]
    values = {parameter: _value(parameter, word) for parameter, word in _named(name, known, constants, "--constexpr")}
    for parameter, one in known.items():
        if parameter in types and parameter in values:
            raise UsageError(f"accel: parameter '{parameter}' of kernel '{name}' has a type and a value; give one")
        if parameter in types and one.is_constexpr:
            raise UsageError(
                f"accel: parameter '{parameter}' of kernel '{name}' is constexpr; give --constexpr {parameter}=VALUE"
            )
        if parameter not in types and parameter not in values:
            if not one.has_default:
                option = "--constexpr B=64" if one.is_constexpr else "--signature n=i32"
                raise UsageError(
                    f"accel: parameter '{parameter}' of kernel '{name}' is not given; give it like {option}"
                )
            values[parameter] = one.default
    return {parameter: types.get(parameter, "constexpr") for parameter in known}, values, attributes


def _named(kernel: str, known: dict[str, Any], words: Sequence[str], option: str) -> list[tuple[str, str]]:
    """The words as pairs of parameter and value."""
    pairs = []
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"accel: '{word}' of {option} is not of the form name=value")
        if name not in known:
            raise UsageError(f"accel: kernel '{kernel}' has no parameter '{name}'; it has {', '.join(known)}")
        pairs.append((name, value))
    return pairs


def _value(parameter: str, word: str) -> Any:
    """A Python literal, or a type of ``triton.language``."""
    import triton.language as tl

    named = getattr(tl, word.removeprefix("tl."), None)
    if isinstance(named, tl.dtype):
        return named
    try:
        return ast.literal_eval(word)
    except (ValueError, SyntaxError):
        raise UsageError(
            f"accel: value '{word}' of parameter '{parameter}' is no Python literal and no type as tl.float32; quote a string: \"'{word}'\""
        ) from None
