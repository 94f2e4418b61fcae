"""Tensors and storages of accel in torch.multiprocessing: the receiver maps the sender's memory, nothing is copied.

Each storage that is sent travels as one descriptor, a socket of which the sender keeps the other end. Whoever holds the
descriptor holds the memory; the system closes it for a process that ends, however it ends.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from multiprocessing import resource_sharer, util
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch

from . import _compat
from ._native import _C
from .streams import Event

__all__ = ["ipc_collect"]

Reduced = tuple[Callable[..., Any], tuple[Any, ...]]

_lock = threading.Lock()  # one import of a storage, however many threads receive it
_identity: tuple[int, bytes] = (0, b"")


def _process() -> bytes:
    """Bytes that no other process has, whatever becomes of process numbers."""
    global _identity
    if _identity[0] != os.getpid():
        _identity = (os.getpid(), os.urandom(16))
    return _identity[1]


def _rebuild_empty(device: torch.device) -> torch.UntypedStorage:
    return torch.UntypedStorage(0, device=device)


def _rebuild_storage(handle: Any, key: tuple[Any, ...]) -> torch.UntypedStorage:
    try:
        file = handle.detach()
    except (OSError, EOFError) as error:
        raise RuntimeError(
            "accel: the process that shared this storage ended before it was received; keep it alive until then"
        ) from error
    with _lock:
        storage = _compat.cached_shared_storage(key)
        if storage is not None:  # one storage here for one there, as often as it is sent
            _C._ipc_receive_again(file)
            return storage
        storage = _C._ipc_receive(file)
        _compat.cache_shared_storage(key, storage)
        return storage


def _reduce_storage(storage: torch.UntypedStorage) -> Reduced:
    if storage.device.type != "accel":
        return _compat.reduce_storage(storage)
    if storage.nbytes() == 0:
        return _rebuild_empty, (storage.device,)
    file = _C._ipc_share(storage)
    try:
        # Not multiprocessing.reduction.DupFd: for the arguments of a process to be spawned, that needs `file` to stay
        # open here for an unknown time, in which this process itself would hold the storage as a receiver.
        handle = resource_sharer.DupFd(file)
    finally:
        os.close(file)
    # Another storage at that address is another storage's memory only after this one is released everywhere.
    key = ("accel", _process(), storage.data_ptr(), storage.nbytes())
    _compat.cache_shared_storage(key, storage)
    return _rebuild_storage, (handle, key)


def _rebuild_view(reduced: Reduced, conj: bool, neg: bool, requires_grad: bool) -> torch.Tensor:
    function, arguments = reduced
    tensor: torch.Tensor = function(*arguments).detach()
    if conj:
        tensor = tensor.conj()
    if neg:
        tensor = _compat.neg_view(tensor)
    return tensor.requires_grad_(requires_grad)


def _reduce_tensor(tensor: torch.Tensor) -> Reduced:
    reduced = _compat.reduce_tensor(tensor)
    bits = tensor.device.type == "accel" and tensor.layout == torch.strided
    if bits and (tensor.is_conj() or tensor.is_neg()):  # torch forgets them
        return _rebuild_view, (reduced, tensor.is_conj(), tensor.is_neg(), tensor.requires_grad)
    return reduced


def _rebuild_event(device: torch.device, handle: bytes) -> Event:
    return Event.from_ipc_handle(device, handle)


def _reduce_event(event: Event) -> Reduced:
    return _rebuild_event, (event.device, event.ipc_handle())


def ipc_collect() -> None:
    """Frees the memory of storages that were sent to other processes and that no process holds any more.

    Sending, and an allocation that finds no memory, do it too. Follows torch.cuda.ipc_collect.
    """
    _C._ipc_collect()


def _warn_of_pending() -> None:
    if not _C._is_initialized() or _C._is_in_bad_fork():
        return
    ipc_collect()
    _, pending = _C._ipc_counts()
    if pending > 0:
        warnings.warn(
            f"Producer process has been terminated before all shared accel tensors released: {pending} storage(s) were "
            f"sent and not yet received, and are lost. Keep the process alive until the receivers have them.",
            stacklevel=1,
        )


def register() -> None:
    """Makes ForkingPickler, which torch.multiprocessing and its queues use, share accel storages."""
    ForkingPickler.register(torch.UntypedStorage, _reduce_storage)
    for kind in (torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(kind, _reduce_tensor)
    ForkingPickler.register(Event, _reduce_event)
    util.Finalize(None, _warn_of_pending, exitpriority=-100)  # after the children that multiprocessing joins
