"""Sees every host wait, however fast the device is: the stream is held, so that a wait always finds unfinished work."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from types import TracebackType

from .._native import _C
from ..streams import current_stream
from . import launch_blocking, wait_report

__all__ = ["WaitWatch"]

POLL_SECONDS = 0.0003


class WaitWatch:
    """Counts the host waits of blocks of code on the current stream::

        with WaitWatch() as watch, watch.block() as waits:
            y = x.nonzero()
        print(waits)  # {'fallback': 1}

    On a held stream a wait would last for ever: a thread lets go of the stream as soon as the driver has counted one. So
    a block shows its first wait for sure, and later ones only if they find unfinished work. Blocks do not nest.
    """

    def __init__(self) -> None:
        self._block: tuple[_C._StreamHold, dict[str, int]] | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True, name="accel-wait-watch")

    def __enter__(self) -> WaitWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self._thread.join()

    def _serve(self) -> None:
        while not self._closed.is_set():
            block = self._block
            if block is not None and wait_report() != block[1]:
                block[0].release()  # released twice it does no harm
            time.sleep(POLL_SECONDS)

    @contextlib.contextmanager
    def block(self) -> Iterator[dict[str, int]]:
        """Yields a dict that holds, after the block, the callers that waited and how often."""
        waits: dict[str, int] = {}
        with launch_blocking(False):
            hold, before = _C._hold_stream(current_stream()), wait_report()
            self._block = (hold, before)
            try:
                yield waits
            finally:
                self._block = None
                hold.release()
                after = wait_report()
                waits.update({k: n - before.get(k, 0) for k, n in after.items() if n != before.get(k, 0)})
