"""Loading objects, and launches as Triton makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ... import get_device_properties
from ..._native import _C
from ..codegen import llvm
from . import checks
from .interpreted import Interpreted


class Utilities:
    """What Triton asks a driver for by name."""

    def get_device_properties(self, device: int) -> dict[str, int]:
        """In Triton's words: bytes, kHz and bits."""
        properties = get_device_properties(device)
        clock = properties.clock_khz
        return {
            "max_shared_mem": properties.sram_per_core,
            "multiprocessor_count": properties.cores,
            "warpSize": 1,
            "sm_clock_rate": clock,
            "mem_clock_rate": clock,
            "mem_bus_width": 8 * properties.hbm_bytes_per_second // (2 * clock * 1000),  # two transfers a cycle
        }

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[Any, Any, int, int, int]:
        """The module and the function, which are both the loaded code; registers, spills, the most threads of a program."""
        code = llvm.Code(kernel)
        return code, code, 0, 0, 1024

    def unload_module(self, module: Any) -> None:
        """Nothing: launches that are queued own the code, and the last of them lets go of it. Triton 3.8 calls this."""

    def set_printf_fifo_size(self, size: int) -> None:
        """Nothing: what kernels print has no buffer."""


class Launcher:
    """Launches one compiled kernel; made once a kernel by Triton."""

    def __init__(self, src: Any, metadata: Any) -> None:
        # Of src only what Inductor's compile workers send along.
        self._metadata = metadata
        self.cooperative = bool(metadata.launch_cooperative_grid)
        self._types = tuple(src.signature.values())
        self.flat = not any(isinstance(type, tuple) for type in self._types)
        self._passed = tuple(type for type in self._types if type != "constexpr")
        # The object's arguments are the parameters that are not constant; of a descriptor's, the first is its address.
        accesses = iter(metadata.accesses)
        self._parameters = []
        for name, type in _leaves([str(name) for name in src.signature], self._types):
            mine = [next(accesses) for _ in range(_arguments(type))]
            self._parameters.append((name, type, mine[0] if mine else 0))
        self.interpreted = bool(metadata.interpreted)
        if self.interpreted and self.cooperative:
            raise ValueError(
                f"accel: kernel '{metadata.name}': programs of a cooperative launch wait for one another, and check="
                f"'{','.join(metadata.check)}' runs them one after the other; launch it with check='oob' or check='none'"
            )
        if "uninit" in metadata.check:
            _C._track_unwritten()
        if self.interpreted:
            self._parameters += [(f"the grid's {axis}", "i32", 0) for axis in "xyz"]
        self.kernel: _C._GridKernel | None = None
        self._function: Any = None

    def __call__(
        self,
        x: int,
        y: int,
        z: int,
        stream: int,
        function: Any,
        packed_metadata: object,
        launch_metadata: object,
        enter_hook: Callable[[object], None] | None,
        exit_hook: Callable[[object], None] | None,
        *arguments: Any,
    ) -> None:
        """Enqueues the grid on ``stream``; scalars and descriptors are copied, so that they may change right after.

        As on CUDA, arguments for constants may be left out: all of them, or the last ones. Hooks run on this thread, around the enqueuing. Raises ValueError for a tensor of another device and TypeError for an argument
        of another kind, naming the argument; what the kernel does wrong rises at the next synchronisation.
        """
        if enter_hook is not None:
            enter_hook(launch_metadata)
        if self.kernel is None or self._function is not function:
            self.kernel, self._function = self._load(function), function
        if not self.flat:
            arguments = self._flattened(arguments)
        if self.interpreted:
            x, y, z, arguments = int(x * y * z > 0), 1, 1, (*arguments, x, y, z)
        self.kernel.launch(x, y, z, stream, self.cooperative, arguments)
        if exit_hook is not None:
            exit_hook(launch_metadata)

    def _flattened(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Those that are not constant, with tuples opened."""
        types = self._types if len(arguments) == len(self._types) else self._passed
        if len(arguments) != len(types):
            raise TypeError(
                f"accel: kernel '{self._metadata.name}' has {len(self._types)} parameters, {len(self._passed)} of which"
                f" are not constant; {len(arguments)} arguments given"
            )
        return tuple(value for value, type in _leaves(arguments, types) if type != "constexpr")

    def _load(self, code: Any) -> _C._GridKernel:
        metadata = self._metadata
        if self.interpreted:
            code = Interpreted(metadata.name, metadata.interpreted, list(metadata.check))
            address, cost = code.address, 0
        else:
            address, cost = code.address(metadata.name), code.address(f"{metadata.name}.cost")
        return _C._load_grid_kernel(
            metadata.name,
            address,
            cost,
            code,
            metadata.shared,
            list(metadata.sites),
            self._parameters,
            self.interpreted or "oob" in metadata.check,
            checks.ORDERS.index(metadata.order),
        )


def _arguments(type: str) -> int:
    """How many of the object's arguments a parameter is.

    Triton's passes make of a descriptor its address, sizes, strides, two flags, and sizes and strides again.
    """
    if type == "constexpr":
        return 0
    return 3 + 4 * (type.count(",") + 1) if type.startswith("tensordesc<") else 1


def _leaves(values: Sequence[Any], types: tuple[Any, ...]) -> Iterator[tuple[Any, str]]:
    """Values beside their types, with the tuples of a signature opened; ``values`` may be the names of parameters."""
    for value, type in zip(values, types, strict=True):
        if isinstance(type, tuple):
            yield from _leaves([f"{value}[{i}]" for i in range(len(type))] if isinstance(value, str) else value, type)
        else:
            yield value, type
