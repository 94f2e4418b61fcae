"""Where the programs of this folder run, and what they are: kinds, names and lines of their faults."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.triton.detectors import bounds, nans, races, unwritten
from torch_accel._native import _C
from torch_accel.triton.interpret.checks import Checks
from torch_accel.triton.interpret.launch import launch

#: (kind, program, name of the argument that the fault is about)
PROGRAMS: list[tuple[str, Callable[..., Any], str]] = [
    (kind, program, argument)
    for kind, module in (("oob", bounds), ("uninit", unwritten), ("nan", nans), ("race", races))
    for program, argument in module.PROGRAMS.items()
]


class Interpreter:
    """NumPy arrays, and the tile IR's interpreter with its detectors."""

    def __init__(self, kinds: str) -> None:
        self.checks = Checks(kinds)

    def array(self, values: np.ndarray) -> np.ndarray:
        """Memory with values."""
        return np.ascontiguousarray(values).copy()

    def empty(self, shape: Any, dtype: Any = np.float32) -> np.ndarray:
        """Memory that nothing has written."""
        return self.checks.empty(shape, dtype)

    def launch(self, kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
        """Runs a kernel to its end."""
        launch(kernel, grid, *arguments, check=self.checks, **constants)

    def read(self, array: np.ndarray) -> np.ndarray:
        """The values in memory."""
        return array


class Accel:
    """Tensors of accel, and compiled kernels with their checks."""

    def __init__(self, kinds: str) -> None:
        self.kinds = kinds
        if "uninit" in kinds:
            _C._track_unwritten()  # as TRITON_ACCEL_CHECK would have, at the beginning

    def array(self, values: np.ndarray) -> torch.Tensor:
        """Memory with values."""
        return torch.from_numpy(np.ascontiguousarray(values).copy()).to("accel")

    def empty(self, shape: Any, dtype: Any = np.float32) -> torch.Tensor:
        """Memory that nothing has written."""
        return torch.empty(shape, dtype=torch.from_numpy(np.empty(0, dtype)).dtype, device="accel")

    def launch(self, kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
        """Enqueues a kernel."""
        kernel[grid](*arguments, **constants, check=self.kinds)

    def read(self, array: torch.Tensor) -> np.ndarray:
        """The values in memory, when they are there."""
        return array.cpu().numpy()


def faulty_lines(program: Callable[..., Any]) -> set[int]:
    """The lines of the program's file that are marked."""
    lines, _ = inspect.findsource(program)
    return {number for number, line in enumerate(lines, 1) if line.rstrip().endswith("# fault")}
