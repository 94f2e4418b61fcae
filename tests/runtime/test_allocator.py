"""The caching allocators of device and pinned memory: sizes, reuse, statistics, running out, reuse across streams."""

from __future__ import annotations

import bisect
import gc
import random
import subprocess
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from expecttest import assert_expected_inline

import torch_accel  # noqa: F401  (registers the device)
from tests.memory import settled
from torch_accel.testing import hold_stream

Script = Callable[..., "subprocess.CompletedProcess[str]"]
KIB = 1 << 10
MIB = 1 << 20


def block(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="accel")


def stat(name: str) -> int:
    return torch.accelerator.memory_stats()[name]


class Change:
    """What happened to the byte counts of the current device since the object was made."""

    names = ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes", "inactive_split_bytes", "segment")

    def __init__(self) -> None:
        self.before = self.read()

    def read(self) -> dict[str, int]:
        return {name: stat(f"{name}.all.current") for name in self.names}

    def __getattr__(self, name: str) -> int:
        return self.read()[name] - self.before[name]


@pytest.fixture(autouse=True)
def stream() -> Iterator[torch.Stream]:
    """Each test allocates on a stream of its own, whose pool is empty."""
    block(1)
    gc.collect()
    torch.accelerator.synchronize()
    torch.accelerator.empty_cache()
    with torch.Stream(device="accel") as stream:
        yield stream
    torch.accelerator.synchronize()


@pytest.mark.parametrize(
    ("requested", "allocated", "segment"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, KIB, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB - 1, 10 * MIB, 10 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB + 1, 12 * MIB, 12 * MIB),  # up to 1 MiB is not worth a split
        (13 * MIB - 1, 14 * MIB, 14 * MIB),
    ],
)
def test_sizes(requested: int, allocated: int, segment: int) -> None:
    change = Change()
    tensor = block(requested)
    assert (change.requested_bytes, change.allocated_bytes, change.reserved_bytes) == (requested, allocated, segment)
    assert (change.segment, change.active_bytes) == (1, allocated)
    assert change.inactive_split_bytes == segment - allocated
    del tensor
    assert (change.requested_bytes, change.allocated_bytes, change.reserved_bytes) == (0, 0, segment)
    assert (change.active_bytes, change.inactive_split_bytes) == (0, 0)
    torch.accelerator.empty_cache()
    assert (change.reserved_bytes, change.segment) == (0, 0)


def test_zero_bytes_take_nothing() -> None:
    change = Change()
    tensor = block(0)
    assert tensor.data_ptr() == 0
    assert tensor.untyped_storage().nbytes() == 0
    assert (change.allocated_bytes, change.reserved_bytes) == (0, 0)


def test_small_and_large_pools_are_counted_apart() -> None:
    small, large = stat("active_bytes.small_pool.current"), stat("active_bytes.large_pool.current")
    tensors = [block(KIB), block(2 * MIB)]
    assert stat("active_bytes.small_pool.current") - small == KIB
    assert stat("active_bytes.large_pool.current") - large == 2 * MIB
    del tensors


def test_peak_and_accumulated_statistics() -> None:
    start = settled()
    torch.accelerator.reset_peak_memory_stats()
    tensor = block(3 * MIB)
    del tensor
    assert torch.accelerator.memory_allocated() == start
    assert torch.accelerator.max_memory_allocated() == start + 3 * MIB
    torch.accelerator.reset_peak_memory_stats()
    assert torch.accelerator.max_memory_allocated() == start
    assert stat("num_device_alloc") > 0
    torch.accelerator.reset_accumulated_memory_stats()
    assert stat("num_device_alloc") == 0
    assert stat("allocated_bytes.all.freed") == 0


def test_memory_info_counts_segments() -> None:
    free, total = torch.accelerator.get_memory_info()
    tensor = block(10 * MIB)
    assert torch.accelerator.get_memory_info() == (free - 10 * MIB, total)
    del tensor
    torch.accelerator.empty_cache()
    assert torch.accelerator.get_memory_info() == (free, total)


def test_best_fit() -> None:
    first, second, third, wall = block(3 * MIB), block(2 * MIB), block(4 * MIB), block(2 * MIB)
    keep = [second, wall]
    holes = first.data_ptr(), third.data_ptr()
    assert holes[1] == holes[0] + 5 * MIB
    del first, third
    assert block(4 * MIB).data_ptr() == holes[1]
    assert block(3 * MIB).data_ptr() == holes[0]
    assert block(3 * MIB // 2).data_ptr() == holes[0]
    del keep


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (0, 2, 1), (1, 0, 2)])
def test_neighbours_merge(order: tuple[int, ...]) -> None:
    change = Change()
    tensors: list[torch.Tensor | None] = [block(3 * MIB), block(3 * MIB), block(3 * MIB)]
    wall = block(2 * MIB)
    start = min(t.data_ptr() for t in tensors if t is not None)
    for i in order:
        tensors[i] = None
    assert block(9 * MIB).data_ptr() == start
    assert change.segment == 1
    del wall


def test_streams_have_their_own_pools() -> None:
    tensor = block(KIB)
    address = tensor.data_ptr()
    del tensor
    with torch.Stream(device="accel"):
        assert block(KIB).data_ptr() != address
    assert block(KIB).data_ptr() == address


def test_a_free_in_the_queue_is_reused_without_waiting(stream: torch.Stream) -> None:
    with hold_stream(stream):
        tensor = block(KIB).fill_(1)
        address = tensor.data_ptr()
        del tensor
        again = block(KIB)
        assert again.data_ptr() == address
        again.fill_(2)
        assert not stream.query()
    assert again.cpu().tolist() == [2] * KIB


def test_storage_resize_to_zero_frees() -> None:
    change = Change()
    tensor = block(4 * MIB)
    tensor.untyped_storage().resize_(0)
    assert change.allocated_bytes == 0
    tensor.untyped_storage().resize_(4 * MIB)
    assert change.allocated_bytes == 4 * MIB


def test_storage_resize_keeps_the_common_bytes() -> None:
    tensor = torch.arange(200, device="accel", dtype=torch.uint8)
    tensor.untyped_storage().resize_(3000)
    assert tensor.cpu().tolist() == list(range(200))


def test_record_stream_defers_reuse() -> None:
    change = Change()
    other = torch.Stream(device="accel")
    with hold_stream(other):
        tensor = block(3 * MIB)
        address = tensor.data_ptr()
        tensor.record_stream(other)
        del tensor
        assert (change.allocated_bytes, change.active_bytes) == (0, 3 * MIB)
        meanwhile = block(3 * MIB)
        assert meanwhile.data_ptr() != address
    torch.accelerator.synchronize()  # the block's own stream too: ACCEL_POISON fills it there
    assert block(3 * MIB).data_ptr() == address
    del meanwhile
    assert change.active_bytes == 0


def test_without_record_stream_reuse_is_at_once(stream: torch.Stream) -> None:
    other = torch.Stream(device="accel")
    with hold_stream(other):
        tensor = block(3 * MIB)
        address = tensor.data_ptr()
        tensor.record_stream(stream)  # its own stream needs no record
        del tensor
        assert block(3 * MIB).data_ptr() == address


def test_record_stream_of_a_view_protects_the_block() -> None:
    other = torch.Stream(device="accel")
    with hold_stream(other):
        tensor = block(3 * MIB)
        address = tensor.data_ptr()
        tensor[MIB:].record_stream(other)
        block(0).record_stream(other)
        del tensor
        meanwhile = block(3 * MIB)
        assert meanwhile.data_ptr() != address
    other.synchronize()


def test_pinned_memory_is_reused_after_its_copy(stream: torch.Stream) -> None:
    with hold_stream(stream):
        pinned = torch.full((5000,), 7, dtype=torch.uint8).pin_memory()
        address = pinned.data_ptr()
        assert pinned.is_pinned()
        on_device = pinned.to("accel", non_blocking=True)
        del pinned
        meanwhile = torch.empty(5000, dtype=torch.uint8, pin_memory=True)
        assert meanwhile.data_ptr() != address
        meanwhile.fill_(9)
    stream.synchronize()
    assert on_device.cpu().tolist() == [7] * 5000
    again = torch.empty(5000, dtype=torch.uint8, pin_memory=True)
    assert again.data_ptr() == address
    torch.accelerator.empty_host_cache()
    assert meanwhile.tolist() == [9] * 5000


def test_pinned_addresses_only() -> None:
    assert not torch.empty(3).is_pinned()
    assert torch.empty(3).pin_memory().is_pinned()
    assert torch.empty(3).pin_memory()[1:].is_pinned()


class Intervals:
    """Live blocks of all threads; an overlap is an error."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.starts: list[int] = []
        self.ends: dict[int, int] = {}

    def add(self, start: int, size: int) -> None:
        with self.lock:
            at = bisect.bisect(self.starts, start)
            assert at == 0 or self.ends[self.starts[at - 1]] <= start
            assert at == len(self.starts) or start + size <= self.starts[at]
            self.starts.insert(at, start)
            self.ends[start] = start + size

    def remove(self, start: int) -> None:
        with self.lock:
            del self.starts[bisect.bisect_left(self.starts, start)]
            del self.ends[start]


def churn(model: Intervals, seed: int, steps: int) -> None:
    """Random allocations, frees and record_stream calls on two streams, then frees all."""
    rng = random.Random(seed)
    streams = [torch.Stream(device="accel") for _ in range(2)]
    live: list[torch.Tensor] = []
    for _ in range(steps):
        if live and rng.random() < 0.5:
            victim = live.pop(rng.randrange(len(live)))
            model.remove(victim.data_ptr())
            del victim
        else:
            with streams[rng.randrange(2)]:
                tensor = block(rng.choice([1, 512, 4 * KIB, MIB, 3 * MIB]) + rng.randrange(600))
                model.add(tensor.data_ptr(), tensor.numel())
                if rng.random() < 0.3:
                    tensor[:1].fill_(1)
            if rng.random() < 0.2:
                tensor.record_stream(streams[rng.randrange(2)])
            live.append(tensor)
            del tensor
        if rng.random() < 0.01:
            torch.accelerator.empty_cache()
    for tensor in live:
        model.remove(tensor.data_ptr())


@pytest.mark.parametrize("threads", [1, 4])
def test_live_blocks_never_overlap(threads: int) -> None:
    change = Change()
    model = Intervals()
    errors: list[BaseException] = []

    def run(seed: int) -> None:
        try:
            churn(model, seed, 1200 // threads)
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=run, args=(seed,)) for seed in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not errors, errors
    torch.accelerator.synchronize()
    torch.accelerator.empty_cache()
    assert {name: getattr(change, name) for name in Change.names} == dict.fromkeys(Change.names, 0)


def test_out_of_memory(script: Script) -> None:
    child = script(
        """
        import torch, torch_accel
        a = torch.empty(40 << 20, dtype=torch.uint8, device="accel")
        try:
            torch.empty(30 << 20, dtype=torch.uint8, device="accel")
        except torch.OutOfMemoryError as error:
            print(error)
        b = torch.empty(20 << 20, dtype=torch.uint8, device="accel").fill_(3)
        assert b.cpu().eq(3).all()
        stats = torch.accelerator.memory_stats()
        assert (stats["num_ooms"], stats["num_alloc_retries"]) == (1, 1), stats
        """,
        ACCEL_MEMORY="64MiB",
    )
    assert_expected_inline(
        child.stdout.strip(),
        """\
accel out of memory. Tried to allocate 30.00 MiB. Device accel:0 has a total capacity of 64.00 MiB of which 24.00 MiB is free. 40.00 MiB is allocated by torch_accel, 0 bytes is reserved but unallocated. Raise ACCEL_MEMORY, free tensors, or call torch.accel.empty_cache().
The largest blocks in use:
  40.00 MiB: 1 block of 40.00 MiB on stream 0
torch.accel.memory._record_memory_history() shows where they were allocated.""",
    )


def test_out_of_memory_waits_for_deferred_frees_and_releases_the_cache(script: Script) -> None:
    script(
        """
        import torch, torch_accel
        def block(mib):
            return torch.empty(mib << 20, dtype=torch.uint8, device="accel")
        s, t = torch.Stream(device="accel"), torch.Stream(device="accel")
        with s:
            x = block(40)  # in use on t for 50 ms after its free
            with t:
                torch.accel._sleep(50_000_000)
            x.record_stream(t)
            del x
            y = block(40)
            assert torch.accelerator.memory_stats()["num_sync_all_streams"] >= 1
            y.fill_(1)
            del y
        with t:  # cached on s, with work of s still queued
            z = block(50).fill_(2)
            assert z.cpu().eq(2).all()
        """,
        ACCEL_MEMORY="64MiB",
    )


def test_an_absurd_size_is_out_of_memory() -> None:
    with pytest.raises(torch.OutOfMemoryError, match=r"accel out of memory. Tried to allocate .* GiB"):
        block(1 << 60)
    with pytest.raises(torch.OutOfMemoryError):
        block((1 << 63) - 1)


def test_poison_fills_fresh_and_freed_memory(script: Script) -> None:
    script(
        """
        import ctypes
        import torch, torch_accel
        def all_ones(tensor):
            return tensor.cpu().view(torch.uint8).eq(255).all()
        s = torch.Stream(device="accel")
        for stream in (None, s):
            x = torch.empty(1000, device="accel")
            assert all_ones(x)
            x.fill_(1)
            assert x.cpu().eq(1).all()
            address = torch.accel.memory.numpy(x).ctypes.data
            if stream is not None:
                x.record_stream(stream)
            del x
            torch.empty(1, device="accel")  # looks at the deferred frees
            torch.accelerator.synchronize()
            assert ctypes.string_at(address, 4000) == b"\\xff" * 4000
        """,
        ACCEL_POISON="1",
    )


def test_a_forked_child_frees_nothing(script: Script) -> None:
    script(
        """
        import os
        import torch, torch_accel
        x = torch.ones(1000, device="accel")
        p = torch.ones(1000).pin_memory()
        torch.accelerator.synchronize()
        pid = os.fork()
        if pid == 0:
            try:
                del x, p
                torch.accelerator.empty_cache()
                torch.accelerator.empty_host_cache()
                try:
                    torch.empty(3, device="accel")
                except RuntimeError as error:
                    assert "forked subprocess" in str(error), error
                else:
                    os._exit(2)
            except BaseException as error:
                print(error, flush=True)
                os._exit(1)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert x.cpu().eq(1).all() and p.eq(1).all()
        """,
        ACCEL_POISON="1",
    )


def test_caches_can_be_emptied_before_initialisation(script: Script) -> None:
    script(
        """
        import torch, torch_accel
        torch.accelerator.empty_cache()
        torch.accelerator.empty_host_cache()
        assert torch.accelerator.memory_stats() == {}
        assert not torch.empty(3).is_pinned()
        assert not torch.accel.is_initialized()
        """
    )


@pytest.mark.parametrize(
    ("config", "requested", "allocated"),
    [("roundup_power2_divisions:4", 1100 * KIB, 1280 * KIB), ("roundup_power2_divisions:1", 1100 * KIB, 1100 * KIB)],
)
def test_roundup_configuration(script: Script, config: str, requested: int, allocated: int) -> None:
    child = script(
        f"""
        import torch, torch_accel
        x = torch.empty({requested}, dtype=torch.uint8, device="accel")
        print(torch.accelerator.memory_allocated())
        """,
        PYTORCH_ALLOC_CONF=config,
    )
    assert int(child.stdout) == allocated


def test_max_split_size_keeps_large_blocks_whole(script: Script) -> None:
    child = script(
        """
        import torch, torch_accel
        def block(mib):
            return torch.empty(mib << 20, dtype=torch.uint8, device="accel")
        block(40)
        x = block(5)
        print(torch.accelerator.memory_reserved() >> 20)
        """,
        PYTORCH_ALLOC_CONF="max_split_size_mb:30",
    )
    assert int(child.stdout) == 60


def test_garbage_collection_threshold_bounds_the_cache(script: Script) -> None:
    script(
        """
        import torch, torch_accel
        for mib in range(10, 60, 2):
            torch.empty(mib << 20, dtype=torch.uint8, device="accel")
        assert torch.accelerator.memory_stats()["num_alloc_retries"] == 0
        """,
        ACCEL_MEMORY="128MiB",
        PYTORCH_ALLOC_CONF="garbage_collection_threshold:0.5",
        ACCEL_POISON="0",  # a block that is still to be filled cannot be released
    )


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("ACCEL_POISON", "yes", "must be 0 or 1"),
        ("ACCEL_ALLOC_FAIL_NTH", "third", "must be the number of an allocation"),
        ("ACCEL_ALLOC_FAIL_NTH", "-1", "must be the number of an allocation"),
    ],
)
def test_unknown_value_of_a_variable(script: Script, name: str, value: str, rule: str) -> None:
    child = script(
        """
        import torch, torch_accel
        try:
            torch.empty(3, device="accel")
        except RuntimeError as error:
            print(error)
        """,
        **{name: value},
    )
    text = child.stdout.splitlines()[0]
    assert text.startswith(f"accel: {name} {rule}")
    assert text.endswith(f"got '{value}'")
