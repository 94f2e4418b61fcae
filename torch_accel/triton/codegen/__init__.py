"""Native code for tile kernels: LLVM IR written as text, compiled in this process by llvmlite. Needs the extra ``[compile]``.

``compile_module`` makes the object of a kernel, ``load`` makes an object callable.
"""

from .compile import CompiledKernel, compile_machine, compile_module
from .llvm import Code as load
from .llvm import Target, target

__all__ = ["CompiledKernel", "Target", "compile_machine", "compile_module", "load", "target"]
