"""What torch's classes do with accel memory beyond operators: DLPack, and the bytes of a storage."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.dlpack import DLDeviceType

from . import _compat
from .streams import Stream, current_stream, default_stream

_STREAMS = 1 + 2 * 32


def _all_streams(one: Stream) -> Iterator[Stream]:
    """Every stream of the device of ``one``: the default one and the two pools."""
    for number in range(_STREAMS):
        yield Stream(stream_id=number, device_index=one.device_index, device_type=one.device_type)


def _stream_of(handle: int, device: int) -> torch.Stream | None:
    """The stream that a DLPack consumer names, or None where it wants no order.

    Raises:
        BufferError: no stream of the device has that handle.
    """
    if handle == -1:
        return None
    if handle == 1:  # as torch.cuda's legacy default stream
        return default_stream(device)
    current = current_stream(device)
    for stream in (current, *_all_streams(current)):
        if stream.accel_stream == handle:
            return stream
    raise BufferError(
        f"unsupported stream on accel: {handle}; pass torch.accel.Stream.accel_stream of a stream of accel:{device}, "
        f"1 for its default stream, or -1 for no synchronization"
    )


def _export(original: Any) -> Any:
    @functools.wraps(original)
    def __dlpack__(self: torch.Tensor, **options: Any) -> Any:
        capsule = original(self, **options)  # refuses what DLPack cannot say
        if self.device.type == "accel":
            handle = options.get("stream")
            stream = _stream_of(1 if handle is None else handle, self.device.index)
            producer = current_stream(self.device)
            if stream is not None and stream != producer:
                stream.wait_stream(producer)
        return capsule

    return __dlpack__


def _device(original: Any) -> Any:
    @functools.wraps(original)
    def __dlpack_device__(self: torch.Tensor) -> tuple[Any, int]:
        if self.device.type == "accel":
            return DLDeviceType.kDLExtDev, self.device.index
        result: tuple[Any, int] = original(self)
        return result

    return __dlpack_device__


def _byteswap(original: Any) -> Any:
    @functools.wraps(original)
    def _byteswap(self: torch.UntypedStorage, size: int) -> None:
        if self.device.type != "accel":
            original(self, size)
        elif size in (2, 4, 8):
            if self.nbytes() % size != 0:
                raise RuntimeError(f"the length of data is not a multiple of {size}")
            values = torch.empty(0, dtype=torch.uint8, device=self.device).set_(
                self, 0, (self.nbytes() // size, size), (size, 1)
            )
            values.copy_(values.flip(1))

    return _byteswap


def install() -> None:
    """Teaches Tensor and UntypedStorage, which know torch's own devices only."""
    _compat.wrap(torch.Tensor, "__dlpack__", _export)
    _compat.wrap(torch.Tensor, "__dlpack_device__", _device)
    _compat.wrap(torch.UntypedStorage, "_byteswap", _byteswap)
