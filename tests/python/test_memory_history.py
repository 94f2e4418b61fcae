"""The history and the snapshot of device memory, in torch.cuda's format, read by torch.cuda's own viewer."""

from __future__ import annotations

import gc
import pickle
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.accel import memory
from torch.accel.testing import hold_stream
from torch.cuda import _memory_viz

MiB = 1 << 20
Entry = dict[str, Any]


@pytest.fixture(autouse=True)
def stream() -> Iterator[torch.Stream]:
    """Each test allocates on a stream of its own, whose pool is empty, and leaves the recording off."""
    gc.collect()
    torch.accel.synchronize()
    torch.accel.empty_cache()
    with torch.Stream(device="accel") as stream:
        yield stream
    memory._record_memory_history(None, clear_history=True)
    torch.accel.synchronize()


def block(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="accel")


def record(*args: Any, **kwargs: Any) -> None:
    memory._record_memory_history(*args, **{"stacks": "python", "clear_history": True, **kwargs})


def trace(stream: torch.Stream | None = None) -> list[Entry]:
    """The entries of accel:0; of one stream, where tests before this one may still free memory of others."""
    entries = memory._snapshot()["device_traces"][0]
    return entries if stream is None else [entry for entry in entries if entry["stream"] == stream.stream_id]


def actions(entries: list[Entry]) -> list[str]:
    return [entry["action"] for entry in entries]


def functions(entry: Entry) -> list[str]:
    return [frame["name"] for frame in entry["frames"]]


def test_nothing_is_recorded_until_asked_for(stream):
    block(MiB)
    assert actions(trace(stream)) == []
    assert all(s["frames"] == [] for s in memory.memory_snapshot())


def test_the_life_of_a_block(stream):
    record()
    x = block(3 * MiB - 100)
    address = x.data_ptr()
    del x
    torch.accel.empty_cache()
    entries = trace(stream)
    assert [(e["action"], e["addr"], e["size"], e["pool_id"]) for e in entries] == [
        ("segment_alloc", address, 20 * MiB, (0, 0)),
        ("alloc", address, 3 * MiB - 100, (0, 0)),
        ("free_requested", address, 3 * MiB - 100, (0, 0)),
        ("free_completed", address, 3 * MiB - 100, (0, 0)),
        ("segment_free", address, 20 * MiB, (0, 0)),
    ]
    assert all(e["user_metadata"] == "" and e["compile_context"] == "N/A" for e in entries)


def test_times_are_microseconds_of_the_clock(stream):
    import time

    record()
    before = time.time_ns() // 1000
    block(1)
    after = time.time_ns() // 1000
    times = [entry["time_us"] for entry in trace(stream)]
    assert times == sorted(times)
    assert before - 1000 <= times[0] <= times[-1] <= after + 1000  # the two clocks are read one after the other


def test_a_free_completes_when_the_streams_that_use_it_have_got_there(stream, queued):
    record()
    other = torch.Stream(device="accel")
    with hold_stream(other):
        x = block(3 * MiB)
        x.record_stream(other)
        held = memory.memory_snapshot()
        del x
        assert actions(trace(stream)) == ["segment_alloc", "alloc", "free_requested"]
        states = [b["state"] for s in memory.memory_snapshot() for b in s["blocks"] if s["stream"] == stream.stream_id]
        assert states == ["active_pending_free", "inactive"]
    assert [b["state"] for s in held for b in s["blocks"] if s["stream"] == stream.stream_id] == [
        "active_allocated",
        "inactive",
    ]
    other.synchronize()
    block(1)  # looks at the deferred frees
    assert "free_completed" in actions(trace(stream))


def test_running_out_of_memory_is_an_entry(script):
    script(
        """
        import torch
        from torch.accel import memory
        memory._record_memory_history(stacks="python")
        x = torch.empty(40 << 20, dtype=torch.uint8, device="accel")
        def too_much():
            torch.empty(30 << 20, dtype=torch.uint8, device="accel")
        try:
            too_much()
        except torch.OutOfMemoryError:
            pass
        entry = [e for e in memory._snapshot()["device_traces"][0] if e["action"] == "oom"]
        assert len(entry) == 1 and "addr" not in entry[0]
        assert (entry[0]["size"], entry[0]["device_free"]) == (30 << 20, 24 << 20)
        assert entry[0]["frames"][0]["name"] == "too_much"
        """,
        ACCEL_MEMORY="64MiB",
    )


def allocate_here() -> torch.Tensor:
    return block(3 * MiB)


def free_here(holder: list[torch.Tensor]) -> None:
    holder.clear()


@pytest.mark.parametrize(
    ("context", "live", "allocated", "freed"),
    [
        ("all", True, True, "free_here"),
        ("alloc", True, True, "allocate_here"),  # a free then has the stack of its allocation
        ("state", True, False, None),
        (None, False, False, None),
    ],
)
def test_whose_stacks_are_kept(stream, context, live, allocated, freed):
    record(context=context)
    holder = [allocate_here()]
    blocks = [b for s in memory.memory_snapshot() for b in s["blocks"] if b["address"] == holder[0].data_ptr()]
    assert ("allocate_here" in functions(blocks[0])) == live
    free_here(holder)
    entries = {entry["action"]: entry for entry in trace(stream)}
    assert ("allocate_here" in functions(entries["alloc"])) == allocated
    for action in ("free_requested", "free_completed"):
        names = functions(entries[action])
        assert names == [] if freed is None else freed in names


def test_frames_say_file_line_and_function():
    record()
    x = allocate_here()
    frame = next(f for f in memory.owner(x.data_ptr())["frames"] if f["name"] == "allocate_here")
    assert frame == {
        "name": "allocate_here",
        "filename": __file__,
        "line": allocate_here.__code__.co_firstlineno + 1,
    }


def test_cpp_frames_where_asked_for(stream):
    record(stacks="all")
    x = allocate_here()
    names = functions(trace(stream)[-1])
    assert any("CapturedTraceback" in name for name in names)  # C++
    assert names.index("allocate_here") > 0  # called Python last
    record(stacks="python")
    y = block(30 * MiB)
    assert not any("CapturedTraceback" in name for name in functions(trace(stream)[-1]))
    del x, y


def test_a_fallback_has_the_callers_stack(stream):
    x = torch.ones(1000, device="accel")
    record()

    def count_here():
        return torch.nonzero(x)

    found = count_here()
    assert "count_here" in functions({"frames": memory.owner(found.data_ptr())["frames"]})


def test_max_entries_keeps_the_newest(stream):
    record(max_entries=3)
    for size in (1, 2, 3, 4):
        block(size)
    kept = memory._snapshot()["device_traces"][0]
    assert [(e["action"], e["size"]) for e in kept[:2]] == [("free_requested", 4), ("free_completed", 4)]
    assert actions(kept) == ["free_requested", "free_completed", "snapshot"]


def test_state_keeps_no_history(stream):
    record("state")
    x = allocate_here()
    assert len(memory._snapshot()["device_traces"][0]) == 1
    assert "allocate_here" in functions({"frames": memory.owner(x.data_ptr())["frames"]})


def test_skipped_actions(stream):
    record(skip_actions=["free_requested", "segment_alloc", "snapshot"])
    block(1)
    assert actions(trace(stream)) == ["alloc", "free_completed"]
    assert actions(trace()) == actions(trace())  # no snapshot entries either


def test_clear_history_and_off(stream):
    record()
    block(1)
    memory._record_memory_history(stacks="python")
    assert "alloc" in actions(trace(stream))  # kept
    memory._record_memory_history(stacks="python", clear_history=True)
    assert actions(trace(stream)) == []
    block(1)
    memory._record_memory_history(None)
    assert trace() == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"enabled": "on"}, "expected state to be 'state', 'all', or None"),
        ({"context": "some"}, "expected context to be 'state', 'alloc', 'all', or None"),
        ({"stacks": "c++"}, "expected stacks to be 'python', or 'all'"),
        ({"skip_actions": ["malloc"]}, "Unknown TraceEntry action: malloc"),
    ],
)
def test_unknown_arguments(arguments, message):
    with pytest.raises(RuntimeError, match=message):
        memory._record_memory_history(**arguments)


def test_metadata_goes_into_the_entries(stream):
    record()
    memory._set_memory_metadata("forward")
    assert memory._get_memory_metadata() == "forward"
    x = block(1)
    memory._set_memory_metadata("")
    del x
    notes = {entry["action"]: entry["user_metadata"] for entry in trace(stream)}
    assert (notes["alloc"], notes["free_requested"]) == ("forward", "")


def test_annotations_are_the_profilers_ranges(stream):
    record()
    with torch.profiler.record_function("the step"):
        block(1)
    snapshot = memory._snapshot()
    found = [(a["name"], a["stage"], a["device"]) for a in snapshot["external_annotations"]]
    assert found == [("the step", "START", 0), ("the step", "END", 0)]
    start, end = (a["time_us"] for a in snapshot["external_annotations"])
    alloc = next(e for e in snapshot["device_traces"][0] if e["action"] == "alloc")
    assert start <= alloc["time_us"] <= end
    memory._record_memory_history(None, clear_history=True)
    with torch.profiler.record_function("after"):
        pass
    assert memory._snapshot()["external_annotations"] == []


def test_compiled_regions_are_named(stream):
    record(compile_context=True)
    with torch.profiler.record_function("Torch-Compiled Region: 9/9"):
        x = block(1)  # a user's range of that name is no region
    y = torch.compile(block, backend="eager")(2)
    z = block(3)
    regions = {e["size"]: e["compile_context"] for e in trace(stream) if e["action"] == "alloc"}
    assert regions[1] == regions[3] == "N/A"
    assert regions[2].startswith("Torch-Compiled Region: ")
    del x, y, z


def test_the_settings_are_in_the_snapshot(script):
    script(
        """
        import torch
        from torch.accel import memory
        settings = memory._snapshot()["allocator_settings"]
        assert settings["PYTORCH_ALLOC_CONF"] == "max_split_size_mb:32,garbage_collection_threshold:0.5"
        assert settings["max_split_size"] == 32 << 20 and settings["garbage_collection_threshold"] == 0.5
        """,
        PYTORCH_ALLOC_CONF="max_split_size_mb:32,garbage_collection_threshold:0.5",
    )


def test_segments_of_a_snapshot_add_up(stream):
    tensors = [block(1), block(700), block(3 * MiB - 1)]
    for segment in (s for s in memory.memory_snapshot() if s["stream"] == stream.stream_id):
        blocks = segment["blocks"]
        assert segment["device"] == 0 and not segment["is_expandable"]
        assert sum(b["size"] for b in blocks) == segment["total_size"]
        ends = [b["address"] + b["size"] for b in blocks]
        assert [b["address"] for b in blocks] == [segment["address"], *ends[:-1]]
        live = [b for b in blocks if b["state"] == "active_allocated"]
        assert segment["allocated_size"] == segment["active_size"] == sum(b["size"] for b in live)
        assert segment["requested_size"] == sum(b["requested_size"] for b in live)
        sizes = {"small": [1, 700], "large": [3 * MiB - 1]}[segment["segment_type"]]
        assert [b["requested_size"] for b in live] == sizes
    total = sum(s["allocated_size"] for s in memory.memory_snapshot() if s["device"] == 0)
    assert total == torch.accel.memory_allocated()
    del tensors


def test_no_segments_before_initialisation(script):
    script(
        """
        import torch
        assert torch.accel.memory_snapshot() == []
        assert torch.accel.memory.owner(0x1234) is None
        assert torch.accel.memory.fragmentation().reserved == 0
        assert not torch.accel.is_initialized()
        """
    )


def test_the_viewers_of_torch_cuda_read_it(tmp_path, stream):
    record()
    kept = [allocate_here(), block(1)]
    free_here([block(5 * MiB)])
    file = tmp_path / "snapshot.pickle"
    memory._dump_snapshot(str(file))
    snapshot = pickle.loads(file.read_bytes())

    told = _memory_viz.trace(snapshot)
    for size in ("3.0MiB", "5.0MiB", "20.0MiB"):
        assert size in told
    assert _memory_viz.segsum(snapshot).count("20.0MiB allocated") >= 1
    flames = _memory_viz.memory(snapshot, format_flamegraph=str)
    mine = [line for line in flames.splitlines() if f"stream_{stream.stream_id};" in line]
    assert any("allocate_here" in line and line.endswith(f" {3 * MiB}") for line in mine)
    assert any("inactive" in line for line in mine)
    by_segment = _memory_viz.segments(snapshot, format_flamegraph=str)
    assert f"seg_{kept[0].untyped_storage().data_ptr()};" in by_segment
    for plot in (_memory_viz.trace_plot, _memory_viz.segment_plot):
        page = plot(snapshot)
        assert page.lstrip().startswith("<!DOCTYPE html>") and len(page) > 1000
    grown = _memory_viz.compare(snapshot["segments"], memory.memory_snapshot(), format_flamegraph=str)
    assert "only_before" in grown or "only_after" in grown or grown == ""


def test_stacks_die_with_what_they_belong_to():
    def allocate():
        return block(1)

    code = allocate.__code__
    before = sys.getrefcount(code)
    record()
    x = allocate()
    assert sys.getrefcount(code) > before
    memory._record_memory_history(None, clear_history=True)
    del x  # the block's, then the segment's
    torch.accel.empty_cache()
    record()
    block(1)  # gathering a stack lets those go that died where there was no GIL
    assert sys.getrefcount(code) == before
