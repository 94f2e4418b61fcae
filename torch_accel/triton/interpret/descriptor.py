"""Tensor descriptors over NumPy arrays, as arguments of kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True)
class Descriptor:
    """What ``triton.tools.tensor_descriptor.TensorDescriptor`` is for a tensor: a view of an array that a kernel takes blocks of.

    ``shape`` and ``strides`` are in elements, the last stride is 1; ``padding``, "zero" or "nan", is what a block has outside of the
    shape. Raises ValueError for other values.
    """

    base: NDArray[Any]
    shape: Sequence[int]
    strides: Sequence[int]
    block_shape: Sequence[int]
    padding: str = "zero"
    round_f32_to_tf32: bool = False

    def __post_init__(self) -> None:
        if not len(self.shape) == len(self.strides) == len(self.block_shape) > 0:
            raise ValueError(
                f"accel: a descriptor of shape {tuple(self.shape)} has strides {tuple(self.strides)} and blocks of"
                f" {tuple(self.block_shape)}; give as many of each"
            )
        if self.strides[-1] != 1:
            raise ValueError(f"accel: a descriptor's last stride is {self.strides[-1]}, expected 1")
        if self.padding not in ("zero", "nan"):
            raise ValueError(f"accel: a descriptor's padding is '{self.padding}', expected 'zero' or 'nan'")

    @staticmethod
    def from_array(array: NDArray[Any], block_shape: Sequence[int], padding: str = "zero") -> Descriptor:
        """All of an array."""
        return Descriptor(array, array.shape, [n // array.itemsize for n in array.strides], block_shape, padding)

    def type(self, element: str) -> str:
        """In Triton's words; ``element`` is the array's."""
        return f"tensordesc<{element}{list(self.block_shape)}>"

    def opened(self, name: str) -> list[tuple[str, Any]]:
        """The arguments that Triton's passes make of it, by name: the sizes come a second time for ``desc.shape``."""
        sizes = [(f"{name}.shape[{d}]", size) for d, size in enumerate(self.shape)]
        steps = [(f"{name}.strides[{d}]", step) for d, step in enumerate(self.strides)]
        flags = [(f"{name}.padding", self.padding == "nan"), (f"{name}.round_f32_to_tf32", self.round_f32_to_tf32)]
        return [(name, self.base), *sizes, *steps, *flags, *sizes, *steps]
