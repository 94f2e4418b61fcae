"""From a ``@triton.jit`` function to the text of Triton's IR, with no GPU and no driver: Triton's own frontend and passes."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import libdevice
from .ir import lower_ttir, reader, verify
from .ir.core import Operation
from .passes import strict as strictly

TARGET = ("accel", "accel1", 1)  # name, architecture, threads of a warp


def _strict() -> bool:
    """What the environment says. Raises ValueError for anything but 0 and 1."""
    given = os.environ.get("TRITON_ACCEL_STRICT", "")
    if given not in ("", "0", "1"):
        raise ValueError(f"accel: TRITON_ACCEL_STRICT is '{given}', expected 0 or 1")
    return given == "1"


@dataclass(frozen=True)
class Options:
    """What Triton's frontend asks a backend for, with our answers."""

    num_warps: int = 4
    num_ctas: int = 1
    num_stages: int = 3
    warp_size: int = 1
    enable_fp_fusion: bool = True
    launch_cooperative_grid: bool = False
    supported_fp8_dtypes: tuple[str, ...] = ("fp8e5", "fp8e4nv", "fp8e4b8", "fp8e5b16")
    deprecated_fp8_dot_operand_dtypes: tuple[str, ...] = ()
    default_dot_input_precision: str = ""  # ieee; tf32 if strict
    allowed_dot_input_precisions: tuple[str, ...] = ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6")
    max_num_imprecise_acc_default: int = 0
    extern_libs: Mapping[str, str] | None = None
    debug: bool = False
    backend_name: str = "accel"
    sanitize_overflow: bool = False
    arch: str = TARGET[1]
    instrumentation_mode: str = ""
    ir_override: str | None = None
    maxnreg: int | None = None
    check: tuple[str, ...] = ()  # what is looked for while it runs: "oob"
    order: str = "ascending"  # in which programs are claimed
    #: what a GPU does not promise is shown: ``passes.strict``, and products of at least the sizes that CUDA takes
    strict: bool = field(default_factory=_strict)

    def __post_init__(self) -> None:
        if not self.default_dot_input_precision:
            object.__setattr__(self, "default_dot_input_precision", "tf32" if self.strict else "ieee")

    def hash(self) -> str:
        """For the keys of Triton's caches."""
        return hashlib.sha256(repr(self).encode()).hexdigest()


def codegen(options: Options) -> dict[str, Callable[..., Any]]:
    """What else it asks for: tiles of any size may be multiplied, or as on CUDA (triton/backends/nvidia/compiler.py)."""
    if not options.strict:
        return {"min_dot_size": lambda lhs, rhs: (1, 1, 1)}
    return {"min_dot_size": lambda lhs, rhs: (1, 1, 32 if lhs.scalar.primitive_bitwidth == 8 else 16)}


# Triton's passes in our order. Inlining first; block pointers and descriptors become pointer arithmetic (3.8 rewrites
# block pointers in its frontend, and has no pass for them).
PASSES = (
    ("common", "inliner"),
    ("ttir", "rewrite_tensor_pointer"),
    ("ttir", "rewrite_tensor_descriptor_to_pointer"),
    ("common", "canonicalizer"),
    ("ttir", "combine"),
    ("ttir", "reorder_broadcast"),
    ("common", "cse"),
    ("common", "symbol_dce"),
    ("ttir", "triton_licm"),
    ("ttir", "loop_unroll"),
    ("common", "canonicalizer"),
    ("common", "cse"),
)


def module(
    kernel: Any,
    signature: Mapping[str, str],
    constants: Mapping[str, Any] | None = None,
    attributes: Mapping[tuple[int, ...], Any] | None = None,
    options: Options | None = None,
    passes: bool = True,
) -> Any:
    """Triton's own module of a kernel, after its passes; ``str`` shows it. See ``ttir``."""
    try:
        from triton._C.libtriton import ir
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource
    except ModuleNotFoundError as error:
        raise ImportError(
            "accel: Triton is missing; install it with: pip install 'torch-accel-sim[compile]'"
        ) from error
    context = ir.context()
    ir.load_dialects(context)
    source = ASTSource(kernel, dict(signature), dict(constants or {}), dict(attributes or {}))
    options = options or Options()
    made = source.make_ir(GPUTarget(*TARGET), options, codegen(options), libdevice.modules(), context)
    if passes:
        run_passes(made)
    return made


def ttir(
    kernel: Any,
    signature: Mapping[str, str],
    constants: Mapping[str, Any] | None = None,
    attributes: Mapping[tuple[int, ...], Any] | None = None,
    **more: Any,
) -> str:
    """The IR of a kernel in MLIR's generic form, which ``ir.reader`` reads.

    ``signature`` names the type of every parameter in Triton's words ("*fp32", "i32", "constexpr"), ``constants`` the values of
    the constexpr ones, ``attributes`` what is known of a parameter: ``{(0,): [["tt.divisibility", 16]]}``. ``passes=False`` gives the
    frontend's output as it is.
    Raises Triton's CompilationError, and ImportError without the extra ``[compile]``.
    """
    return generic(module(kernel, signature, constants, attributes, **more))


def tile_ir(
    kernel: Any,
    signature: Mapping[str, str],
    constants: Mapping[str, Any] | None = None,
    options: Options | None = None,
    **more: Any,
) -> Operation:
    """The verified tile IR of a kernel: ``ttir``'s arguments, then read and lowered. ``ir.printer.text`` shows it.

    Raises IRError, which names the kernel's line, for an operator that the tile IR does not have.
    """
    options = options or Options()
    return lowered(reader.read(ttir(kernel, signature, constants, options=options, **more)), strict=options.strict)


def lowered(module: Operation, *, strict: bool) -> Operation:
    """The verified tile IR of Triton's, as ``ir.reader`` read it. Raises IRError as ``tile_ir`` does."""
    made = lower_ttir.lower(module)
    if strict:
        made = strictly.strict(made)
    verify.verify(made)
    return made


def run_passes(module: Any) -> None:
    """Triton's passes over a module of its own, in place."""
    from triton._C.libtriton import ir, passes

    _mark_descriptors(module)
    manager = ir.pass_manager(module.context)
    for family, name in PASSES:
        known = getattr(passes, family)
        if name != "rewrite_tensor_pointer" or hasattr(known, f"add_{name}"):
            getattr(known, f"add_{name}")(manager)
    manager.run(module, "make_ttir")


def _mark_descriptors(module: Any) -> None:
    """Leaves the rank of each descriptor among the kernel's arguments at what the passes make its first one, the address."""
    function = module.get_function(module.get_entry_func_name())
    for index, type in enumerate(module.get_function_signature(function)):
        if "tensordesc" in type:
            function.set_arg_attr(index, "tt.descriptor", len(re.findall(r"\d+x", type)))


def generic(module: Any) -> str:
    """A module's text in the generic form. Call it last: the module is invalid afterwards.

    Triton's bindings print only the custom form. An attribute that belongs to no dialect makes the module fail MLIR's verification,
    and MLIR prints a module that it does not trust generically.
    """
    from triton._C.libtriton import ir

    module.set_attr("_generic", ir.builder(module.context).get_unit_attr())
    return str(module)
