"""Copies between several devices behind torch.nn.parallel: the functions that torch has for CUDA in C++ only.

Each follows torch/csrc/cuda/comm.cpp: a copy that crosses devices is queued, ordered by the current streams of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from .streams import stream as stream_context

Streams = Sequence[torch.Stream | None] | None


def _device(index: int) -> torch.device:
    return torch.device("cpu") if index < 0 else torch.device("accel", index)


def _check_out(out: Sequence[torch.Tensor], function: str) -> None:
    if not out:
        raise RuntimeError(f"Expected at least one output tensor to {function}")
    for number, tensor in enumerate(out):
        if tensor.device.type != "accel":
            raise RuntimeError(
                f"Expected all output tensors to be accel tensors, but output tensor at index {number} "
                f"is on {tensor.device}"
            )


def broadcast(tensor: torch.Tensor, devices: Sequence[int]) -> list[torch.Tensor]:
    """Copies of ``tensor`` on ``devices``; the tensor itself where it is there already."""
    return [tensor.to(_device(index), non_blocking=True) for index in devices]


def broadcast_out(tensor: torch.Tensor, out: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copies ``tensor`` into each of ``out``."""
    _check_out(out, "broadcast_to")
    for number, target in enumerate(out):
        if target.shape != tensor.shape:
            raise RuntimeError(
                f"Expected all output tensors to have same shape as the source tensor {list(tensor.shape)}, "
                f"but output tensor at index {number} has shape {list(target.shape)}"
            )
        target.copy_(tensor, non_blocking=True)
    return list(out)


def _chunks(tensors: Sequence[torch.Tensor], limit: int) -> Iterator[list[int]]:
    """Numbers of dense tensors of one dtype, together at most ``limit`` bytes or a single one."""
    open_chunks: dict[torch.dtype, tuple[list[int], int]] = {}
    for number, tensor in enumerate(tensors):
        if tensor.layout != torch.strided:
            continue
        chunk, size = open_chunks.get(tensor.dtype, ([], 0))
        if chunk and size + tensor.nbytes > limit:
            yield chunk
            chunk, size = [], 0
        open_chunks[tensor.dtype] = ([*chunk, number], size + tensor.nbytes)
    yield from (chunk for chunk, _ in open_chunks.values())


def broadcast_coalesced(
    tensors: Sequence[torch.Tensor], devices: Sequence[int], buffer_size: int
) -> list[list[torch.Tensor]]:
    """Lists of copies, one a device; tensors of one dtype travel together, up to ``buffer_size`` bytes at once.

    The list of the first device, where all ``tensors`` must be, holds the tensors themselves.
    """
    home = _device(devices[0])
    if any(tensor.device != home for tensor in tensors):
        raise RuntimeError("All tensors must be on devices[0]: " + str(devices[0]))
    results: list[list[torch.Tensor]] = [list(tensors) for _ in devices]
    for result, index in zip(results[1:], devices[1:], strict=True):
        # New tensors, each with a version counter of its own, though a chunk shares its storage.
        for chunk in _chunks(tensors, buffer_size):
            flat = torch.cat([tensors[number].detach().reshape(-1) for number in chunk])
            pieces = flat.to(_device(index), non_blocking=True).split([tensors[number].numel() for number in chunk])
            for number, piece in zip(chunk, pieces, strict=True):
                result[number] = piece.view(tensors[number].shape).data
        for number, tensor in enumerate(tensors):
            if tensor.layout != torch.strided:
                result[number] = tensor.detach().to(_device(index), non_blocking=True)
    return results


def _place(piece: torch.Tensor, target: torch.device | torch.Tensor, stream: torch.Stream | None) -> torch.Tensor:
    device = target if isinstance(target, torch.device) else target.device
    if stream is not None and stream.device != device:
        raise RuntimeError(
            f"Expected the device associated with the stream ({stream.device}) to match the device supplied ({device})"
        )
    with stream_context(stream):
        if isinstance(target, torch.device):
            return piece.to(target, non_blocking=True)
        return target.copy_(piece, non_blocking=True)


def _check_streams(streams: Streams, count: int) -> Sequence[torch.Stream | None]:
    if streams is not None and len(streams) != count:
        raise RuntimeError(f"Expected len(streams) to match the number of devices {count}, but got {len(streams)}")
    return [None] * count if streams is None else streams


def scatter(
    tensor: torch.Tensor,
    devices: Sequence[int],
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: Streams = None,
) -> list[torch.Tensor]:
    """Chunks of ``tensor`` along ``dim`` on ``devices``, each copied on its stream (by default the current one)."""
    if not devices:
        raise RuntimeError("Expected at least one device to scatter to")
    streams = _check_streams(streams, len(devices))
    if chunk_sizes is None:
        chunks = tensor.chunk(len(devices), dim)
    elif len(chunk_sizes) != len(devices):
        raise RuntimeError(
            f"Expected devices and chunk_sizes to be of same length, but got {len(devices)} and {len(chunk_sizes)}"
        )
    else:
        chunks = tensor.split_with_sizes(list(chunk_sizes), dim)
    return [_place(*row) for row in zip(chunks, map(_device, devices), streams, strict=False)]  # chunks may be fewer


def scatter_out(
    tensor: torch.Tensor, out: Sequence[torch.Tensor], dim: int = 0, streams: Streams = None
) -> list[torch.Tensor]:
    """Copies chunks of ``tensor`` along ``dim``, of the sizes of ``out``, into ``out``."""
    _check_out(out, "scatter")
    sizes = [target.size(dim) for target in out]
    if sum(sizes) != tensor.size(dim):
        raise RuntimeError(
            f"Total size for output tensors along scatter dim {dim} does not match, expected {tensor.size(dim)}, "
            f"but got {sum(sizes)}"
        )
    rows = zip(tensor.split_with_sizes(sizes, dim), out, _check_streams(streams, len(out)), strict=True)
    return [_place(*row) for row in rows]


def gather_out(tensors: Sequence[torch.Tensor], out: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """Copies ``tensors`` side by side along ``dim`` into ``out``."""
    sizes = [tensor.size(dim) for tensor in tensors]
    expected = list(tensors[0].shape)
    expected[dim] = sum(sizes)
    if list(out.shape) != expected:
        raise RuntimeError(f"Expected out tensor to have shape {expected}, but got {list(out.shape)}")
    for piece, tensor in zip(out.split_with_sizes(sizes, dim), tensors, strict=True):
        piece.copy_(tensor, non_blocking=out.device.type == "accel")
    return out


def gather(tensors: Sequence[torch.Tensor], dim: int = 0, destination: int | None = None) -> torch.Tensor:
    """The ``tensors`` side by side along ``dim`` on a device (by default the current one; -1: on the CPU)."""
    if not tensors:
        raise RuntimeError("Expected at least one tensor to gather from")
    first = tensors[0]
    dim = dim + first.dim() if dim < 0 else dim
    for number, tensor in enumerate(tensors):
        if tensor.device.type != "accel":
            raise RuntimeError(
                f"Expected all input tensors to be accel tensors, but tensor at index {number} is on {tensor.device}"
            )
        if [*tensor.shape[:dim], *tensor.shape[dim + 1 :]] != [*first.shape[:dim], *first.shape[dim + 1 :]]:
            raise RuntimeError(
                f"Input tensor at index {number} has invalid shape {list(tensor.shape)}, but expected "
                f"{[*first.shape[:dim], tensor.size(dim), *first.shape[dim + 1 :]]}"
            )
    last = all(tensor.is_contiguous(memory_format=torch.channels_last) for tensor in tensors if tensor.dim() == 4)
    shape = list(first.shape)
    shape[dim] = sum(tensor.size(dim) for tensor in tensors)
    device = torch.device("accel", torch.accelerator.current_device_index()) if destination is None else None
    out = torch.empty(
        shape,
        dtype=first.dtype,
        device=device or _device(-1 if destination is None else destination),
        memory_format=torch.channels_last if last and first.dim() == 4 else torch.contiguous_format,
    )
    return gather_out(tensors, out, dim)
