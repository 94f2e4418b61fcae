"""What several modules need: device arguments, and NumPy's view of device bytes."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ._native import _C

Device = torch.device | int | str | None

# NumPy's type string of each dtype; what is not here has no NumPy type.
_TYPESTR = {
    torch.bool: "|b1",
    torch.uint8: "|u1",
    torch.int8: "|i1",
    torch.uint16: "<u2",
    torch.int16: "<i2",
    torch.float16: "<f2",
    torch.uint32: "<u4",
    torch.int32: "<i4",
    torch.float32: "<f4",
    torch.uint64: "<u8",
    torch.int64: "<i8",
    torch.float64: "<f8",
    torch.complex64: "<c8",
    torch.complex128: "<c16",
}
TORCH_DTYPE = {np.dtype(typestr): dtype for dtype, typestr in _TYPESTR.items()}


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The index of ``device`` (torch.device, string, int or None), as torch.cuda._utils has it.

    Args:
        device: an accel device, an index (returned as it is) or None.
        optional: a device without an index, or None, means the current device; otherwise it is an error.
        allow_cpu: return -1 for a CPU device, which is an error otherwise.

    Raises:
        ValueError: a device of another type, or one without an index where it is needed.
    """
    if isinstance(device, int):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    index: int | None = None
    if isinstance(device, torch.device):
        if allow_cpu and device.type == "cpu":
            return -1
        if device.type != "accel":
            raise ValueError(f"Expected an accel device, but got: {device}")
        index = device.index
    elif device is not None:
        raise TypeError(f"Expected an accel device, its index or None, but got: {device!r}")
    if index is not None:
        return index
    if not optional:
        raise ValueError(f"Expected an accel device with a specified index or an integer, but got: {device}")
    return _C._current_device()


class _Bytes:
    """The base of an array over device bytes: NumPy keeps it alive, and it keeps ``owner`` alive."""

    def __init__(self, interface: dict[str, Any], owner: object) -> None:
        self.__array_interface__ = interface
        self.owner = owner


def array_over(
    address: int,
    shape: tuple[int, ...],
    typestr: str,
    strides: tuple[int, ...] | None,
    *,
    writable: bool,
    owner: object,
) -> NDArray[Any]:
    """An array over host address ``address`` (strides in bytes, None for contiguous) that keeps ``owner`` alive."""
    interface = {
        "version": 3,
        "shape": shape,
        "typestr": typestr,
        "data": (address, not writable),
        "strides": strides,
    }
    return np.asarray(_Bytes(interface, owner))


def array_of(tensor: torch.Tensor, *, writable: bool) -> NDArray[Any]:
    """NumPy's view of the bytes of a strided accel tensor, of its shape and strides. Waits for nothing.

    Raises:
        TypeError: the tensor is not a strided accel tensor, or NumPy has no type for its dtype.
        RuntimeError: its conjugate or negative bit is set, so that its bytes are not its values.
    """
    if tensor.device.type != "accel":
        raise TypeError(f"Expected an accel tensor, but got one on {tensor.device}; move it with .to('accel')")
    if tensor.layout != torch.strided:
        raise TypeError(f"Expected a strided accel tensor, but got a {tensor.layout} one; convert it with .to_dense()")
    typestr = _TYPESTR.get(tensor.dtype)
    if typestr is None:
        integer = {1: "torch.uint8", 2: "torch.int16"}.get(tensor.element_size(), "torch.int32")
        raise TypeError(
            f"NumPy has no type for {tensor.dtype}, the dtype of this accel tensor; view its bytes with .view({integer})"
        )
    for bit, name in ((tensor.is_conj(), "conj"), (tensor.is_neg(), "neg")):
        if bit:
            raise RuntimeError(
                f"NumPy cannot show the bytes of an accel tensor whose {name} bit is set; use .resolve_{name}()"
            )
    shape = tuple(tensor.shape)
    if tensor.numel() == 0:
        empty: NDArray[Any] = np.empty(shape, typestr)
        empty.flags.writeable = writable
        return empty
    size = tensor.element_size()
    strides = tuple(stride * size for stride in tensor.stride())
    address = _C._host_address(tensor.data_ptr())
    return array_over(address, shape, typestr, strides, writable=writable, owner=tensor.detach())
