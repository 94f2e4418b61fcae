"""Triton's view of the device: https://github.com/triton-lang/triton, ``backends/driver.py``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase


class AccelDriver(DriverBase):
    """The device that kernels run on while it is Triton's active driver."""

    def __init__(self) -> None:
        super().__init__()
        from torch_accel._native import _C
        from torch_accel.triton.backend import launcher, shortcut

        self.utils = launcher.Utilities()
        self.launcher_cls = launcher.Launcher
        self.get_current_device = _C._current_device
        self.set_current_device = _C._set_device
        self.get_current_stream = _C._current_stream_handle
        shortcut.install(AccelDriver)

    @classmethod
    def is_active(cls) -> bool:
        """True where accel is registered and has a device, and no other driver is active: Triton allows one.

        ``TRITON_DEFAULT_BACKEND=accel`` chooses accel beside another driver.
        """
        chosen = os.environ.get("TRITON_DEFAULT_BACKEND") == "accel"
        if chosen:
            import torch_accel  # noqa: F401
        accel = sys.modules.get("torch_accel")
        if accel is None or not accel.is_available():
            return False
        return chosen or not cls._others_active()

    @classmethod
    def _others_active(cls) -> bool:
        from triton.backends import backends

        return any(other.driver is not cls and other.driver.is_active() for other in backends.values())

    def get_current_target(self) -> GPUTarget:
        """The name is the device's, as Inductor and Helion expect; a core has no warps."""
        from torch_accel.triton import frontend

        return GPUTarget(*frontend.TARGET)

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("accel", self.get_current_device())

    def get_device_interface(self) -> ModuleType:
        """``torch.accel``: events and synchronisation for ``triton.testing``."""
        import torch_accel

        return torch_accel

    def map_python_to_cpp_type(self, ty: str) -> str:
        """For Triton's ahead-of-time tools: how a kernel's argument bytes declare in C."""
        if ty.startswith("*"):
            return "uint64_t"
        kinds = {
            "i1": "uint8_t",
            "u1": "uint8_t",
            "fp16": "uint16_t",
            "bf16": "uint16_t",
            "fp32": "float",
            "fp64": "double",
        }
        sign = {"i": "int", "u": "uint"}
        return kinds.get(ty) or f"{sign[ty[0]]}{ty[1:]}_t"

    def get_benchmarker(self) -> Callable[..., Any]:
        """For the autotuner: ``triton.testing.do_bench``, ended by the host's clock."""
        from torch_accel.triton.backend.benchmark import do_bench

        return do_bench

    def get_empty_cache_for_benchmark(self) -> None:
        """Nothing: the chip has no cache between its cores and memory that a benchmark could clear."""

    def clear_cache(self, cache: None) -> None:
        """See ``get_empty_cache_for_benchmark``."""
