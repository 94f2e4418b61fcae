"""The history and the snapshots of the caching allocator, as torch.cuda.memory records and writes them."""

from __future__ import annotations

import inspect
import pickle
import sys
from typing import Any, Literal

from . import _compat
from ._lazy import lazy_init
from ._native import _C
from ._utils import Device


def _record_memory_history_legacy(
    enabled: bool,
    record_context: bool = True,
    trace_alloc_max_entries: int = 1,
    trace_alloc_record_context: bool = False,
    device: Device = None,
    record_context_cpp: bool = False,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: list[str] | None = None,
) -> None:
    """torch.cuda's older arguments, which a bool in the first place selects."""
    _record_memory_history_impl(
        "all" if enabled else None,
        "alloc" if trace_alloc_record_context else "state" if record_context else None,
        "all" if record_context_cpp else "python",
        trace_alloc_max_entries,
        device,
        clear_history,
        compile_context,
        global_record_annotations,
        skip_actions,
    )


def _record_memory_history_impl(
    enabled: Literal["state", "all"] | None = "all",
    context: Literal["state", "alloc", "all"] | None = "all",
    stacks: Literal["python", "all"] = "all",
    max_entries: int = sys.maxsize,
    device: Device = None,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: list[str] | None = None,
) -> None:
    lazy_init()
    _C._record_memory_history(
        enabled,
        context,
        stacks,
        max_entries,
        clear_history,
        compile_context,
        global_record_annotations,
        skip_actions or [],
    )


def _record_memory_history(enabled: Literal["state", "all"] | bool | None = "all", *args: Any, **kwargs: Any) -> None:
    """Starts or stops the recording of allocations and frees, as torch.cuda.memory._record_memory_history.

    A free is recorded when it is asked for and when the memory may be used again. What a worker allocates for a fallback has
    the stack of the caller. Initialises accel.

    Args:
        enabled: "state": the stacks of live blocks only; "all": a history too; None: record nothing.
        context: of what stacks are kept: "state": live blocks; "alloc": allocations too; "all": frees too; None: nothing.
        stacks: "python", or "all" with the C++ frames.
        max_entries: the history keeps that many entries per device, the newest.
        device: of no effect, as in torch.cuda: all devices record.
        clear_history: forget the entries there are.
        compile_context: note torch.compile's region of each entry.
        global_record_annotations: note the torch.profiler.record_function ranges of all threads, not of this one only.
        skip_actions: actions not to record: "alloc", "free_requested", "free_completed", "segment_alloc",
            "segment_free", "oom", "snapshot".

    A bool as ``enabled`` selects torch.cuda's older arguments (``record_context``, ``trace_alloc_max_entries``, ...).

    Raises:
        RuntimeError: an argument has a value that is not listed here.
    """
    if isinstance(enabled, bool):
        _record_memory_history_legacy(enabled, *args, **kwargs)
    else:
        _record_memory_history_impl(enabled, *args, **kwargs)


_record_memory_history.__signature__ = inspect.signature(_record_memory_history_impl)  # type: ignore[attr-defined]


def _snapshot(device: Device = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """The allocator's state and history on all devices, in the format of torch.cuda.memory._snapshot.

    Args:
        device: of no effect, as in torch.cuda.
        augment_with_fx_traces: add the original source lines to frames of code that torch.fx generated.
    """
    lazy_init()
    snapshot = _C._memory_snapshot((0, 0), True)
    return _compat.augment_memory_snapshot(snapshot) if augment_with_fx_traces else snapshot


def _dump_snapshot(filename: str = "dump_snapshot.pickle", augment_with_fx_traces: bool = False) -> None:
    """Writes :func:`_snapshot` to a file that pytorch.org/memory_viz and torch.cuda._memory_viz read."""
    snapshot = _snapshot(augment_with_fx_traces=augment_with_fx_traces)
    with open(filename, "wb") as file:
        pickle.dump(snapshot, file)


def _save_segment_usage(filename: str = "output.svg", snapshot: dict[str, Any] | None = None) -> None:
    """Writes a flame graph of the segments, by torch.cuda._memory_viz (which fetches flamegraph.pl)."""
    with open(filename, "w") as file:
        file.write(_compat.memory_viz().segments(snapshot or _snapshot()))


def _save_memory_usage(filename: str = "output.svg", snapshot: dict[str, Any] | None = None) -> None:
    """Writes a flame graph of the memory in use, by torch.cuda._memory_viz (which fetches flamegraph.pl)."""
    with open(filename, "w") as file:
        file.write(_compat.memory_viz().memory(snapshot or _snapshot()))


def _set_memory_metadata(metadata: str) -> None:
    """Puts a text into every history entry from now on; "" for none."""
    lazy_init()
    _C._set_memory_metadata(metadata)


def _get_memory_metadata() -> str:
    """The text that :func:`_set_memory_metadata` set."""
    lazy_init()
    return _C._get_memory_metadata()


def _allocation_traceback(data_ptr: int) -> list[dict[str, Any]] | None:
    """The recorded stack of the live block that begins at an address; None if there is none."""
    found = owner(data_ptr)
    if found is None or found["address"] != data_ptr or found["state"] != "active_allocated":
        return None
    return found["frames"] or None


def owner(address: int) -> dict[str, Any] | None:
    """What the caching allocator knows of an address of device memory; None if no segment holds it.

    Returns:
        ``device``; ``segment`` and ``segment_size``; ``address``, ``size`` and ``requested_size`` of the block, in bytes; ``state``
        (``active_allocated``, ``active_pending_free``, ``inactive``); ``stream`` (its ``stream_id``); ``pool_id``; and ``frames``:
        the stack of the allocation or, of an inactive block, that of the last free there, if the history has it
        (:func:`_record_memory_history`).
    """
    return _C._memory_owner(address) if _C._is_initialized() else None
