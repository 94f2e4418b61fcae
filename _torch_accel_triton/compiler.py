"""Triton's view of the compiler: https://github.com/triton-lang/triton, ``backends/compiler.py``."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from triton.backends.compiler import BaseBackend, GPUTarget, Language


class AccelBackend(BaseBackend):
    """Compiles for the target ``accel``, through Triton's IR and the tile IR to an object of the host's instruction set."""

    # Of the last stage. Triton stores and shows the objects of two names only, and would disassemble "cubin" with CUDA's tools.
    binary_ext = "hsaco"

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        return target.backend == "accel"

    def hash(self) -> str:
        """Part of the key of Triton's caches: another compiler, instruction set or version has another."""
        from torch_accel.triton.backend import stages

        return f"{self.target}-{stages.fingerprint()}"

    def parse_options(self, options: dict[str, Any]) -> object:
        """What a launch may set, as ``num_warps`` or ``enable_fp_fusion``; Triton refuses names that are no option."""
        from torch_accel.triton.backend import stages

        return stages.parse_options(options)

    def pack_metadata(self, metadata: Any) -> tuple[int, ...]:
        """What launch hooks see of a kernel beside its name."""
        return (metadata.num_warps, metadata.num_ctas, metadata.shared)

    def get_codegen_implementation(self, options: Any) -> dict[str, Callable[..., Any]]:
        """For Triton's frontend: the sizes of tiles that ``dot`` takes."""
        from torch_accel.triton import frontend

        return frontend.codegen(options)

    def get_module_map(self) -> dict[str, ModuleType]:
        """Our libdevice for Triton's."""
        from torch_accel.triton import libdevice

        return libdevice.modules()

    def load_dialects(self, context: Any) -> None:
        """Triton's own are enough."""

    def add_stages(self, stages: dict[str, Any], options: Any, language: Language = Language.TRITON) -> None:
        """ttir, tile (the tile IR), machine (the machine IR), llir, and the object. Each is kept in the cache as text."""
        from torch_accel.triton.backend import stages as ours

        if language is not Language.TRITON:
            raise NotImplementedError("accel: Gluon kernels are for GPUs' layouts; write the kernel with @triton.jit")
        ours.read_overrides()
        for name, stage in ours.STAGES.items():
            stages[self.binary_ext if name == "object" else name] = stage
