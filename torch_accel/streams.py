"""Streams and events, as torch.cuda.streams has them."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from ._lazy import lazy_init
from ._native import _C
from ._utils import Device, _get_device_index

__all__ = [
    "Event",
    "ExternalStream",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "get_stream_from_external",
    "set_stream",
    "stream",
]


def _expect(value: object, kind: type, name: str) -> None:
    # torch.Stream and torch.Event take any object for one of theirs and read its memory.
    if not isinstance(value, kind):
        raise TypeError(f"torch.accel: {name} must be a torch.{kind.__name__}, but got {value!r}")


class Stream(torch.Stream):
    """An in-order queue of launches on an accel device, independent of the other streams. Follows torch.cuda.Stream.

    Streams come from a pool of 32 per priority and device, handed out in turn.

    Args:
        device: an accel device or its index; the current device by default.
        priority: 0 (normal) or -1 (high); other values mean the nearest of the two.
        kwargs: ``stream_id``, ``device_index`` and ``device_type`` name a stream that exists already.
    """

    def __new__(cls, device: Device = None, priority: int = 0, **kwargs: Any) -> Stream:
        lazy_init()
        if "stream_id" in kwargs:
            return super().__new__(cls, priority=priority, **kwargs)
        index = _get_device_index(device, optional=True)
        return super().__new__(cls, torch.device("accel", index), priority=priority)

    @property
    def priority(self) -> int:
        """0 (normal) or -1 (high)."""
        return _C._stream_priority(self)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The least and the most urgent priority: (0, -1)."""
        return _C._stream_priority_range()

    @property
    def accel_stream(self) -> int:
        """The address of the driver's stream, as torch.cuda.Stream.cuda_stream."""
        return _C._stream_handle(self)

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.accel_stream)  # so that ctypes passes the stream to the chip's C interface

    def wait_event(self, event: torch.Event) -> None:
        """Makes all future work of this stream wait for ``event``; the host does not wait."""
        _expect(event, torch.Event, "event")
        super().wait_event(event)

    def wait_stream(self, stream: torch.Stream) -> None:
        """Makes all future work of this stream wait for all present work of ``stream``; the host does not wait."""
        _expect(stream, torch.Stream, "stream")
        super().wait_stream(stream)

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Records ``event``, or a new one, in this stream and returns it."""
        event = Event() if event is None else event
        _expect(event, torch.Event, "event")
        event.record(self)
        return event

    def __repr__(self) -> str:
        return f"<torch.accel.Stream device={self.device} accel_stream={self.accel_stream:#x}>"


class ExternalStream(Stream):
    """A stream that another library has made with the chip's C interface (``accelStreamCreate``), for use with torch.

    The library keeps the stream: nothing is launched on it any more once it is destroyed. A handle that torch knows
    (:attr:`Stream.accel_stream`, ``torch.Stream.native_handle``) gives that stream. A device has up to 191 of them.

    Args:
        stream_ptr: the ``accelStream_t``, as an integer.
        device: the device on which the stream was made; the current device by default.

    Raises:
        ValueError: ``stream_ptr`` is no stream of that device.
    """

    def __new__(cls, stream_ptr: int, device: Device = None, **kwargs: Any) -> ExternalStream:
        lazy_init()
        index = _get_device_index(device, optional=True)
        stream_id, device_index, device_type = _C._stream_from_external(stream_ptr, index)
        made = super().__new__(cls, stream_id=stream_id, device_index=device_index, device_type=device_type, **kwargs)
        assert isinstance(made, cls)
        return made


class Event(torch.Event):
    """A point in a stream, for ordering and for timing. Follows torch.cuda.Event.

    Args:
        enable_timing: keep the time at which the stream passes the event, for :meth:`elapsed_time`.
        blocking: accepted; :meth:`synchronize` always parks the waiting thread after a short spin.
        interprocess: other processes may record and wait for it too, through :meth:`ipc_handle`; it keeps no time.

    Raises:
        ValueError: ``interprocess`` and ``enable_timing``.
    """

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> Event:
        if interprocess and enable_timing:
            raise ValueError("torch.accel.Event: an interprocess event keeps no time; pass enable_timing=False")
        lazy_init()
        event = super().__new__(cls, torch.device("accel"), enable_timing=enable_timing, blocking=blocking)
        if interprocess:
            _C._ipc_share_event(event, -1, None)
        return event

    @classmethod
    def from_ipc_handle(cls, device: Device, handle: bytes) -> Event:
        """The event of another process behind a handle of :meth:`ipc_handle`; it exists there still.

        Raises:
            ValueError: ``handle`` has not the length of one.
            RuntimeError: there is no such event any more.
        """
        event = cls()
        _C._ipc_share_event(event, _get_device_index(device, optional=True), handle)
        return event

    def ipc_handle(self) -> bytes:
        """64 bytes by which another process of this user opens the event, made with ``interprocess=True``.

        A wait there for a recording that this process made fails if this process ends before it is complete.
        """
        return _C._ipc_event_handle(self)

    def record(self, stream: torch.Stream | None = None) -> None:
        """Records the event in ``stream``, by default the current one."""
        stream = current_stream() if stream is None else stream
        _expect(stream, torch.Stream, "stream")
        super().record(stream)

    def wait(self, stream: torch.Stream | None = None) -> None:
        """Makes all future work of ``stream``, by default the current one, wait for the event."""
        stream = current_stream() if stream is None else stream
        _expect(stream, torch.Stream, "stream")
        super().wait(stream)

    def elapsed_time(self, end_event: torch.Event) -> float:
        """Milliseconds of the stream's time from this event to ``end_event``, both complete and made with enable_timing."""
        _expect(end_event, torch.Event, "end_event")
        return _C._elapsed_time(self, end_event)  # torch's takes no subclass of torch.Event

    def __repr__(self) -> str:
        return f"<torch.accel.Event {self.event_id:#x}>" if self.event_id else "<torch.accel.Event uninitialized>"


def _make(ids: tuple[int, int, int]) -> Stream:
    stream_id, device_index, device_type = ids
    return Stream(stream_id=stream_id, device_index=device_index, device_type=device_type)


def current_stream(device: Device = None) -> Stream:
    """The stream on which this thread's work for ``device`` (by default the current one) is enqueued."""
    lazy_init()
    return _make(_C._current_stream(_get_device_index(device, optional=True)))


def default_stream(device: Device = None) -> Stream:
    """The stream that is current until :func:`set_stream` is called."""
    lazy_init()
    return _make(_C._default_stream(_get_device_index(device, optional=True)))


def get_stream_from_external(data_ptr: int, device: Device = None) -> Stream:
    """The stream of a handle of the chip's C interface, as an integer: see :class:`ExternalStream`.

    Raises:
        ValueError: ``data_ptr`` is no stream of ``device`` (by default the current one).
    """
    lazy_init()
    return _make(_C._stream_from_external(data_ptr, _get_device_index(device, optional=True)))


def set_stream(stream: torch.Stream | None) -> None:
    """Makes ``stream`` current on its device and its device the current one; None changes nothing."""
    if stream is not None:
        _expect(stream, torch.Stream, "stream")
        lazy_init()
        _C._set_stream(stream)


class StreamContext:
    """Context manager that makes ``stream`` (None: no change) current and restores stream and device at the exit."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._previous: list[tuple[Stream, Stream]] = []

    def __enter__(self) -> None:
        if self.stream is not None:
            self._previous.append((current_stream(self.stream.device), current_stream()))
            set_stream(self.stream)

    def __exit__(self, *exc_info: object) -> None:
        if self.stream is not None:
            on_its_device, on_current_device = self._previous.pop()
            set_stream(on_its_device)
            set_stream(on_current_device)


def stream(stream: torch.Stream | None) -> StreamContext:
    """``with torch.accel.stream(s):`` enqueues the work of this thread on ``s``."""
    return StreamContext(stream)
