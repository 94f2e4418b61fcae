"""LLVM in this process: a target, a short pass pipeline, ELF objects, and objects made callable."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
from dataclasses import dataclass
from typing import Any

from .libm import PREFIX, SYMBOLS

try:
    import llvmlite.binding as binding
except ModuleNotFoundError as error:
    raise ImportError("accel: llvmlite is missing; install it with: pip install 'torch-accel-sim[compile]'") from error


@dataclass(frozen=True)
class Target:
    """An instruction set. ``vector_bits`` is the width of its registers, ``key`` what a cache of objects has to know."""

    name: str
    cpu: str
    features: str
    vector_bits: int

    @property
    def key(self) -> str:
        """Another key is other code."""
        return f"{self.cpu}:{self.features}:{self.vector_bits}:llvm{'.'.join(map(str, binding.llvm_version_info))}"

    @property
    def x86(self) -> bool:
        """Whether it has x86's own instructions."""
        return "x86_64" in binding.get_process_triple()

    @property
    def avx512(self) -> bool:
        """Whether it has AVX-512's instructions."""
        return self.x86 and self.vector_bits == 512

    @property
    def attributes(self) -> str:
        """Attributes of every function: LLVM prefers half of AVX-512's registers unless it is told."""
        return f'"prefer-vector-width"="{self.vector_bits}" "min-legal-vector-width"="{self.vector_bits}" nounwind'


_FIXED = {"x86-64-v3": 256, "x86-64-v4": 512}


@functools.cache
def target(name: str = "host") -> Target:
    """The host, or one of the fixed "x86-64-v3" (AVX2 and FMA) and "x86-64-v4" (AVX-512).

    Raises ValueError for another name, RuntimeError on an x86 host that has no FMA.
    """
    if name in _FIXED:
        return Target(name, name, "", _FIXED[name])
    if name != "host":
        raise ValueError(f"accel: target is '{name}', expected 'host', 'x86-64-v3' or 'x86-64-v4'")
    features = binding.get_host_cpu_features()
    if "x86_64" in binding.get_process_triple() and not (features.get("avx2") and features.get("fma")):
        raise RuntimeError("accel: Triton kernels need a CPU with AVX2 and FMA, and this one has not both")
    wide = bool(features.get("avx512f") and features.get("avx512dq") and features.get("avx512vl"))
    bits = 512 if wide and features.get("avx512bw") else 256 if features.get("avx2") else 128
    return Target(name, binding.get_host_cpu_name(), features.flatten(), bits)


@functools.cache
def _triple() -> Any:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding.Target.from_triple(binding.get_process_triple())


def _new_machine(target: Target) -> Any:
    # The large code model, though each constant costs an instruction to get its address: LLVM may place an object's constants
    # more than 2 GiB from its code, and aborts the process if the code cannot reach them.
    return _triple().create_target_machine(
        cpu=target.cpu, features=target.features, opt=2, reloc="static", codemodel="large"
    )


_machine = functools.cache(_new_machine)


def _optimise(module: Any, machine: Any) -> None:
    """The passes that loops with allocas need; the rest of LLVM's pipeline is slower to run and no faster to execute."""
    manager = binding.create_new_module_pass_manager()
    for _ in range(2):
        manager.add_sroa_pass()
        manager.add_simplify_cfg_pass()
        manager.add_instruction_combine_pass()
        manager.add_loop_rotate_pass()
    manager.add_dead_code_elimination_pass()
    builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options())
    manager.run(module, builder)
    builder.close()


@dataclass(frozen=True)
class Compiled:
    """What a module became: an ELF object, the IR after the passes, and the machine's instructions on demand."""

    object: bytes
    llvm_text: str


def compile_text(text: str, target: Target) -> Compiled:
    """An ELF object of LLVM IR. Raises RuntimeError with LLVM's words for IR that is wrong: a fault of ours."""
    machine = _machine(target)
    module = _parse(text)
    _optimise(module, machine)
    return Compiled(machine.emit_object(module), str(module))


def assemble(llvm_text: str, target: Target) -> bytes:
    """The object of IR that ran through the passes. Raises RuntimeError with LLVM's words for IR that is wrong."""
    return bytes(_machine(target).emit_object(_parse(llvm_text)))


def assembly(llvm_text: str, target: Target) -> str:
    """The instructions of IR that ran through the passes."""
    return str(_machine(target).emit_assembly(_parse(llvm_text)))


def code_size(object: bytes) -> int:
    """Bytes of instructions in an object."""
    _triple()
    return sum(section.size() for section in binding.ObjectFileRef.from_data(object).sections() if section.is_text())


def _parse(text: str) -> Any:
    _triple()
    module = binding.parse_assembly(text)
    module.triple = binding.get_process_triple()
    module.verify()
    return module


class Code:
    """An object made callable. The addresses are good as long as this lives.

    Raises ValueError for what is no object file.
    """

    def __init__(self, object: bytes) -> None:
        if not object.startswith(b"\x7fELF"):  # LLVM would end the process
            raise ValueError(f"accel: the object of a kernel begins with {object[:4]!r}, expected an ELF file")
        machine = _new_machine(target())  # the engine's own from here on
        _known_functions()
        self._engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
        self._engine.add_object_file(binding.ObjectFileRef.from_data(object))
        self._engine.finalize_object()

    def address(self, symbol: str) -> int:
        """Where a function begins. Raises KeyError for a name that the object does not have."""
        address = self._engine.get_function_address(symbol)
        if not address:
            raise KeyError(f"accel: the object has no function '{symbol}'")
        return int(address)


@functools.cache
def _known_functions() -> None:
    """Objects name functions of the C library; LLVM finds only those that the process shows to all."""
    library = ctypes.CDLL(ctypes.util.find_library("m") or "libm.so.6")  # it brings the C library's own
    for name in (*SYMBOLS, "printf", "fflush", "snprintf"):
        binding.add_symbol(PREFIX + name, ctypes.cast(getattr(library, name), ctypes.c_void_p).value)
