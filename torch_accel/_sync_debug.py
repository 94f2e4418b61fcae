"""What is told of a host wait that hides in another operation: which operation, and the Python code that called it."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType

import torch

from ._native import _C

__all__ = ["HostWait", "host_waits"]

#: frames of a stack that a warning or an error shows
MOST_FRAMES = 8

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep


@dataclass(frozen=True)
class HostWait:
    """One operation that made the host wait, or would have if its stream had not been empty."""

    #: the operation, as ``_local_scalar_dense`` or ``aten::nonzero``
    operation: str
    #: the name under which :func:`torch_accel.testing.wait_report` counts it, as ``item`` or ``fallback``
    caller: str
    #: the Python stack, outermost first; empty on a thread without Python code, as autograd's
    stack: traceback.StackSummary

    @property
    def frame(self) -> traceback.FrameSummary | None:
        """The line to look at: the innermost frame that is neither torch's nor torch_accel's."""
        return next((f for f in reversed(self.stack) if not f.filename.startswith((_TORCH, _OURS))), None)

    def __str__(self) -> str:
        name = self.operation if self.operation == self.caller else f"{self.operation} ({self.caller})"
        frame = self.frame
        return name if frame is None else f"{name} at {frame.filename}:{frame.lineno} in {frame.name}"


Listener = Callable[[HostWait], object]

# Replaced as a whole: a thread that waits reads it without the lock.
_listeners: tuple[Listener, ...] = ()
_lock = threading.Lock()


def _stack(frame: FrameType | None) -> traceback.StackSummary:
    """The stack from ``frame`` out, source lines unread, without torch_accel's innermost frames."""
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    frames = []
    while frame is not None:  # StackSummary.extract asks for every file whether it has changed
        code = frame.f_code
        frames.append(traceback.FrameSummary(code.co_filename, frame.f_lineno, code.co_name, lookup_line=False))
        frame = frame.f_back
    return traceback.StackSummary.from_list(frames[::-1])


def _text(stack: traceback.StackSummary) -> str:
    if not stack:
        return "\nNo Python code on this thread (autograd's?)."
    lines = traceback.StackSummary.from_list(stack[-MOST_FRAMES:]).format()
    left_off = f" ({len(stack) - MOST_FRAMES} outer frames left off)" if len(stack) > MOST_FRAMES else ""
    return f"\nPython stack, innermost last{left_off}:\n{''.join(lines).rstrip()}"


def _observe(operation: str, caller: str) -> str:
    """Tells the listeners of a wait, and returns what a warning or an error adds."""
    wait = HostWait(operation, caller, _stack(sys._getframe().f_back))
    for listener in _listeners:
        listener(wait)
    return "" if _C._sync_debug_mode() == 0 else _text(wait.stack)


def add_listener(listener: Listener) -> None:
    """Calls ``listener`` before every host wait that hides in an operation, on the thread that waits."""
    global _listeners
    with _lock:
        _listeners = (*_listeners, listener)
        _C._watch_waits(True)


def remove_listener(listener: Listener) -> None:
    """Takes a listener away that :func:`add_listener` has added."""
    global _listeners
    with _lock:
        kept = list(_listeners)
        kept.remove(listener)
        _listeners = tuple(kept)
        _C._watch_waits(bool(kept))


@contextlib.contextmanager
def host_waits() -> Iterator[list[HostWait]]:
    """Yields a list to which every host wait that hides in an operation is added, of any thread, in order.

    What is reported is what :func:`torch.accel.set_sync_debug_mode` reports: ``item()``, copies to pageable memory,
    operators whose result's size depends on the data, fallbacks, ``Stream.synchronize``. It is reported whether or not
    there was anything to wait for, so a fast device hides nothing. Waits that are asked for by name, as
    ``torch.accel.synchronize`` and ``Event.synchronize``, are not.
    """
    waits: list[HostWait] = []
    listener = waits.append
    add_listener(listener)
    try:
        yield waits
    finally:
        remove_listener(listener)


_C._observe_waits(_observe)
