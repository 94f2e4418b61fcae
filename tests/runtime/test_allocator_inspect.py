"""What the allocator tells of an address, of fragmentation and to the profiler; memory without the cache."""

from __future__ import annotations

import gc
import subprocess
from collections.abc import Callable, Iterator

import pytest
import torch
from torch.accel import memory
from torch.accel.testing import hold_stream

from tests.memory import settled

Script = Callable[..., "subprocess.CompletedProcess[str]"]
MiB = 1 << 20


def block(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="accel")


@pytest.fixture(autouse=True)
def stream() -> Iterator[torch.Stream]:
    """Each test allocates on a stream of its own, whose pool is empty."""
    gc.collect()
    torch.accel.synchronize()
    torch.accel.empty_cache()
    with torch.Stream(device="accel") as stream:
        yield stream
    memory._record_memory_history(None, clear_history=True)
    torch.accel.synchronize()


def test_the_owner_of_an_address(stream: torch.Stream) -> None:
    first, second = block(3 * MiB), block(5 * MiB - 7)
    start = second.data_ptr()
    expected = {
        "device": 0,
        "segment": first.data_ptr(),
        "segment_size": 20 * MiB,
        "address": start,
        "size": 5 * MiB,
        "requested_size": 5 * MiB - 7,
        "state": "active_allocated",
        "stream": stream.stream_id,
        "pool_id": (0, 0),
        "frames": [],
    }
    for address in (start, start + 1234, start + 5 * MiB - 1):
        assert memory.owner(address) == expected
    before, after = memory.owner(start - 1), memory.owner(start + 5 * MiB)
    assert before is not None and before["address"] == first.data_ptr()
    assert after is not None and (after["state"], after["size"], after["requested_size"]) == ("inactive", 12 * MiB, 0)
    last = first.data_ptr() + 20 * MiB
    assert memory.owner(last - 1) == after
    beyond = memory.owner(last)
    assert beyond is None or beyond["segment"] == last
    assert memory.owner(0) is None and memory.owner(torch.ones(1).data_ptr()) is None


def test_the_owner_of_freed_memory_is_who_freed_it() -> None:
    def free_here(holder: list[torch.Tensor]) -> None:
        holder.clear()

    memory._record_memory_history(stacks="python", clear_history=True)
    holder, wall = [block(3 * MiB), block(3 * MiB)], block(MiB)
    address = holder[1].data_ptr() + 100
    live = memory.owner(address)
    assert live is not None and live["frames"][0]["name"] == "block"
    free_here(holder)
    found = memory.owner(address)
    assert found is not None and found["state"] == "inactive"
    assert found["frames"][0]["name"] == "free_here"
    del wall


def test_the_stack_of_an_allocation() -> None:
    memory._record_memory_history(stacks="python", clear_history=True)
    x = block(1)
    address = x.data_ptr()
    frames = memory._allocation_traceback(address)
    assert frames is not None and frames[0]["name"] == "block"
    assert memory._allocation_traceback(address + 1) is None  # not the base
    del x
    assert memory._allocation_traceback(address) is None


def test_fragmentation() -> None:
    before = memory.fragmentation()
    assert before.idle == before.reserved - before.active
    tensors = [block(4 * MiB) for _ in range(5)]  # fill a segment of 20 MiB
    del tensors[3], tensors[1]
    holes = memory.fragmentation()
    assert holes.reserved - before.reserved == 20 * MiB
    assert holes.active - before.active == 12 * MiB
    assert holes.split - before.split == 8 * MiB
    assert holes.releasable == before.releasable
    if before.idle == 0:
        assert (holes.largest, holes.ratio) == (4 * MiB, 0.5)
    del tensors
    whole = memory.fragmentation()
    assert (whole.releasable - before.releasable, whole.split) == (20 * MiB, before.split)
    assert whole.largest >= 20 * MiB


def test_memory_for_other_libraries(stream: torch.Stream) -> None:
    allocated = settled()
    address = torch.accel.caching_allocator_alloc(3 * MiB)
    found = memory.owner(address)
    assert found is not None
    assert (found["requested_size"], found["stream"]) == (3 * MiB, stream.stream_id)
    assert torch.accel.memory_allocated() == allocated + 3 * MiB
    other = torch.Stream(device="accel")
    elsewhere = torch.accel.caching_allocator_alloc(1, stream=other)
    assert memory.owner(elsewhere)["stream"] == other.stream_id
    torch.accel.caching_allocator_delete(address)
    torch.accel.caching_allocator_delete(elsewhere)
    assert torch.accel.memory_allocated() == allocated
    assert torch.accel.caching_allocator_alloc(0) == 0
    torch.accel.caching_allocator_delete(0)
    for wrong in (address, address + 512, 12345):
        with pytest.raises(RuntimeError, match="invalid device pointer: "):
            torch.accel.caching_allocator_delete(wrong)
    with pytest.raises(TypeError, match="Invalid type for stream argument"):
        torch.accel.caching_allocator_alloc(1, stream=0)
    with pytest.raises(ValueError, match="Invalid size: -1"):
        torch.accel.caching_allocator_alloc(-1)


def test_without_the_cache_memory_goes_back(stream: torch.Stream, queued: None) -> None:
    pool = memory.MemPool()
    with memory.use_mem_pool(pool):
        pooled = block(3 * MiB).data_ptr()
    reserved = torch.accel.memory_reserved()
    with memory.caching_allocator_disabled():
        x, y = block(3 * MiB), block(700)
        assert torch.accel.memory_reserved() == reserved + 20 * MiB + 2 * MiB
        with hold_stream(stream):
            x.fill_(1)
            del x  # queued work still uses it
            z = block(700)
            assert torch.accel.memory_reserved() == reserved + 20 * MiB + 2 * 2 * MiB
        stream.synchronize()
        w = block(700)
        assert torch.accel.memory_reserved() == reserved + 3 * 2 * MiB
        with memory.use_mem_pool(pool):
            assert block(3 * MiB).data_ptr() == pooled  # a graph keeps addresses of its pool
    del y, z, w
    assert block(700) is not None
    assert torch.accel.memory_reserved() == reserved + 3 * 2 * MiB  # cached again


def test_there_is_one_allocator() -> None:
    assert torch.accel.get_allocator_backend() == "native"


def test_empty_cache_gives_the_pages_back_to_the_host(script: Script) -> None:
    script(
        """
        import torch
        arena = torch.accel.memory.arena()
        first = arena.__array_interface__["data"][0]

        def resident():  # KiB of the arena's pages
            total, inside = 0, False
            for line in open("/proc/self/smaps"):
                head = line.split()[0]
                if not head.endswith(":"):
                    start, end = (int(part, 16) for part in head.split("-"))
                    inside = first <= start and end <= first + arena.nbytes
                elif head == "Rss:" and inside:
                    total += int(line.split()[1])
            return total

        before = resident()
        x = torch.ones(8 << 20, device="accel")
        y = torch.ones(1, device="accel")
        torch.accel.synchronize()
        assert resident() >= before + (32 << 10), (before, resident())
        del x
        assert resident() >= before + (32 << 10)  # cached
        torch.accel.empty_cache()
        assert resident() <= before + (2 << 10), (before, resident())
        assert y.item() == 1
        assert torch.zeros(8 << 20, device="accel").sum().item() == 0
        """,
        ACCEL_POISON="0",  # which writes to all of a fresh segment
    )


def test_the_profiler_sees_the_bytes() -> None:
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        x = block(3 * MiB)
        del x
    events = [event for event in profile.events() if event.name in ("aten::empty", "[memory]")]
    assert sum(max(event.device_memory_usage, 0) for event in events) == 3 * MiB
    assert {event.device_memory_usage for event in events} >= {3 * MiB, -3 * MiB}


def test_running_out_of_memory_is_told_to_the_profiler() -> None:
    with torch.profiler.profile(profile_memory=True) as profile, pytest.raises(torch.OutOfMemoryError):
        block(1 << 50)
    assert any(event.name == "[OutOfMemory]" for event in profile.events())


def test_statistics_do_nothing_before_initialisation(script: Script) -> None:
    script(
        """
        import torch
        accel = torch.accel
        assert accel.memory_stats() == accel.memory_stats_as_nested_dict() == accel.host_memory_stats() == {}
        for read in (accel.memory_allocated, accel.max_memory_allocated, accel.memory_reserved, accel.max_memory_reserved):
            assert read() == 0
        for reset in (
            accel.reset_peak_memory_stats,
            accel.reset_accumulated_memory_stats,
            accel.reset_peak_host_memory_stats,
            accel.reset_accumulated_host_memory_stats,
            accel.empty_cache,
            accel.empty_host_cache,
        ):
            reset()
        shared = torch.accelerator
        for read in (shared.memory_allocated, shared.max_memory_allocated, shared.memory_reserved, shared.max_memory_reserved):
            assert read() == 0
        assert shared.memory_stats() == {}
        for reset in (
            shared.reset_peak_memory_stats,
            shared.reset_accumulated_memory_stats,
            shared.empty_cache,
            shared.empty_host_cache,
        ):
            reset()
        assert not accel.is_initialized()
        """
    )
