"""Kernels of ours, each with arguments and what it must give by NumPy's or torch's formulas."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from torch_accel.triton import frontend
from torch_accel.triton.interpret import raw, tile
from torch_accel.triton.interpret.memory import Memory
from torch_accel.triton.ir import lower_ttir, reader, verify

FILES = (
    *("elementwise", "casts", "reductions", "shapes", "control", "memory", "matrix"),
    *("activations", "layers", "indexing", "updates", "ranks"),
)


@dataclass(frozen=True)
class Case:
    """``signature`` is "x:*fp32 n:i32"; what it leaves out is constexpr. ``make`` gives the arguments: arrays (buffers, stored as
    ``floats.storage`` says) and numbers; ``want`` of those the arrays that must come out, by their place. ``ulp`` 0 is bit for bit."""

    kernel: Any
    signature: str
    make: Callable[[np.random.Generator], Sequence[Any]]
    want: Callable[..., Mapping[int, Any]]
    constants: Mapping[str, Any] = field(default_factory=dict)
    grid: tuple[int, ...] = (1,)
    rtol: float = 0
    atol: float = 0
    label: str = ""

    @property
    def name(self) -> str:
        return self.kernel.fn.__name__ + (f"-{self.label}" if self.label else "")

    def types(self) -> dict[str, str]:
        known = dict(part.split(":") for part in self.signature.split())
        return {name: known.get(name, "constexpr") for name in self.kernel.arg_names}

    def ttir(self, passes: bool = True) -> str:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="tl.make_block_ptr is deprecated")  # old kernels have it
            return frontend.ttir(self.kernel, self.types(), self.constants, passes=passes)

    def arguments(self) -> list[Any]:
        return list(self.make(np.random.default_rng(7)))


@functools.cache
def cases() -> dict[str, Case]:
    found = [case for file in FILES for case in importlib.import_module(f"tests.triton.kernels.{file}").CASES]
    assert len({case.name for case in found}) == len(found), "two cases have one name"
    return {case.name: case for case in found}


@functools.cache
def modules(name: str):
    """Triton's IR and the tile IR of a case."""
    module = reader.read(cases()[name].ttir())
    verify.verify_ssa(module)
    lowered = lower_ttir.lower(module)
    verify.verify(lowered)
    return module, lowered


def run(entry, module, kernel: str, grid, arguments, say=print) -> list[Any]:
    """Runs one interpreter on copies of the arguments, and gives the copies. A callable argument is called with the memory."""
    memory, copies, passed = Memory(), copied(arguments), []
    for index, value in enumerate(copies):
        if isinstance(value, np.ndarray):
            passed.append(memory.add(value, f"argument {index}"))
        else:
            passed.append(value(memory) if callable(value) else value)
    entry(module, kernel, grid, passed, memory, say)
    return copies


def copied(arguments: Sequence[Any]) -> list[Any]:
    """Copies of the arrays; an array that is there twice is there twice again."""
    made = {id(value): value.copy() for value in arguments if isinstance(value, np.ndarray)}
    return [made.get(id(value), value) for value in arguments]


def run_both(case: Case, say=print):
    """The arguments after the raw interpreter and after the tile interpreter."""
    module, lowered = modules(case.name)
    name = case.kernel.fn.__name__
    return [
        run(entry, ir, name, case.grid, case.arguments(), say) for entry, ir in ((raw.run, module), (tile.run, lowered))
    ]


def stored(array: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """An array cast by torch and stored as the interpreter stores it."""
    return bits(torch.from_numpy(np.ascontiguousarray(array)).to(dtype))


def bits(tensor: torch.Tensor) -> np.ndarray:
    """A tensor as stored: NumPy's own dtype, or the bits where it has none."""
    views = {torch.bfloat16: (torch.int16, np.uint16)}
    if tensor.dtype in views:
        view, dtype = views[tensor.dtype]
        return tensor.contiguous().view(view).numpy().view(dtype)
    return (
        tensor.contiguous().view(torch.uint8).numpy()
        if tensor.element_size() == 1 and tensor.is_floating_point()
        else tensor.contiguous().numpy()
    )


def floats_of(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """The tensor of an array that is stored as bits."""
    return torch.from_numpy(array.view(np.int16) if array.dtype == np.uint16 else array).view(dtype)
