"""Private pools: torch.accel.MemPool, what is routed there, who keeps it, when its memory goes back."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest
import torch
from expecttest import assert_expected_inline
from torch.accel.memory import MemPool, use_mem_pool
from torch.accel.testing import hold_stream

from torch_accel._native import _C

MiB = 1 << 20


def block(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="accel")


def pool_of(tensor: torch.Tensor) -> tuple[int, int]:
    found = torch.accel.memory.owner(tensor.data_ptr())
    assert found is not None
    return found["pool_id"]


def segments(pool: MemPool) -> list[dict]:
    return pool.snapshot(include_traces=False)


@pytest.fixture(autouse=True)
def stream() -> Iterator[torch.Stream]:
    """Each test allocates on a stream of its own, whose general pool is empty."""
    gc.collect()
    torch.accel.synchronize()
    torch.accel.empty_cache()
    with torch.Stream(device="accel") as stream:
        yield stream
    torch.accel.synchronize()


def test_memory_inside_and_outside_a_pool_is_not_mixed():
    pool = MemPool()
    outside = block(3 * MiB)
    with use_mem_pool(pool):
        inside = block(3 * MiB)
        small = block(1)
    after = block(3 * MiB)
    assert [pool_of(x) for x in (outside, inside, small, after)] == [(0, 0), pool.id, pool.id, (0, 0)]
    assert sorted(s["total_size"] for s in segments(pool)) == [2 * MiB, 20 * MiB]
    assert {s["segment_pool_id"] for s in segments(pool)} == {pool.id}


def test_freed_memory_of_a_pool_is_used_again_inside_it_only():
    pool = MemPool()
    with use_mem_pool(pool):
        address = block(3 * MiB).data_ptr()
    assert block(3 * MiB).data_ptr() != address
    with use_mem_pool(pool):
        assert block(3 * MiB).data_ptr() == address


def test_a_block_freed_outside_the_context_goes_back_to_its_pool():
    pool = MemPool()
    with use_mem_pool(pool):
        inside = block(3 * MiB)
    address = inside.data_ptr()
    del inside
    with use_mem_pool(pool):
        assert block(3 * MiB).data_ptr() == address


def test_use_count():
    pool = MemPool()
    counts = [pool.use_count()]
    with use_mem_pool(pool):
        counts.append(pool.use_count())
    counts.append(pool.use_count())
    assert counts == [1, 2, 1]


def test_reserved_bytes_of_each_pool_are_counted():
    pool = MemPool()
    with use_mem_pool(pool):
        block(30 * MiB)
        block(1)
    stats = torch.accel.memory_stats_as_nested_dict()["reserved_bytes_by_private_pools"][pool.id]
    assert {kind: counts["current"] for kind, counts in stats.items()} == {
        "all": 32 * MiB,
        "small_pool": 2 * MiB,
        "large_pool": 30 * MiB,
    }
    key = f"reserved_bytes_by_private_pools.0_{pool.id[1]}.all"
    del pool
    after = torch.accel.memory_stats()
    assert (after[f"{key}.current"], after[f"{key}.peak"], after[f"{key}.freed"]) == (0, 32 * MiB, 32 * MiB)
    torch.accel.reset_peak_memory_stats()
    assert torch.accel.memory_stats()[f"{key}.peak"] == 0


def test_ids_differ_and_are_of_a_user():
    first, second = MemPool(), MemPool()
    assert first.id[0] == second.id[0] == 0
    assert first.id[1] != second.id[1]
    assert first.allocator is None


def test_empty_cache_returns_the_memory_of_a_pool_once_nobody_has_it():
    reserved = torch.accel.memory_reserved()
    pool = MemPool()
    with use_mem_pool(pool):
        address = block(30 * MiB).data_ptr()
    torch.accel.empty_cache()
    assert torch.accel.memory_reserved() == reserved + 30 * MiB  # the pool still has it
    with use_mem_pool(pool):
        assert block(30 * MiB).data_ptr() == address
    del pool
    assert torch.accel.memory_reserved() == reserved


def test_a_tensor_outlives_its_pool():
    reserved = torch.accel.memory_reserved()
    pool = MemPool()
    with use_mem_pool(pool):
        x = block(30 * MiB).fill_(7)
    id = pool.id
    del pool
    assert x[123].item() == 7
    assert pool_of(x) == id
    torch.accel.empty_cache()
    assert torch.accel.memory_reserved() >= reserved + 30 * MiB
    del x
    torch.accel.empty_cache()
    assert torch.accel.memory_reserved() == reserved
    assert _C._pool_use_count(0, id) == 0


def test_nested_pools_route_to_the_inner_one():
    outer, middle, inner = MemPool(), MemPool(), MemPool()
    with use_mem_pool(outer):
        a = block(MiB)
        with use_mem_pool(middle):
            b = block(MiB)
            with use_mem_pool(inner):
                c = block(MiB)
            d = block(MiB)
        e = block(MiB)
    assert [pool_of(x) for x in (a, b, c, d, e)] == [outer.id, middle.id, inner.id, middle.id, outer.id]


def test_a_pool_cannot_be_begun_twice():
    pool = MemPool()
    with use_mem_pool(pool):
        with pytest.raises(RuntimeError, match="already recording to mempool_id"), use_mem_pool(pool):
            pass
        assert pool.use_count() == 2
        assert pool_of(block(1)) == pool.id
    assert pool.use_count() == 1


def test_ends_and_releases_without_a_beginning():
    with pytest.raises(RuntimeError, match="not currently recording to mempool_id"):
        _C._end_allocate_to_pool(0, (0, 12345))
    with pytest.raises(RuntimeError, match=r"nobody uses a memory pool \(0, 12345\) on accel:0"):
        _C._release_pool(0, (0, 12345))
    with pytest.raises(RuntimeError, match=r"\(0, 0\) is not the id of a private memory pool"):
        _C._begin_allocate_current_thread_to_pool(0, (0, 0))


def test_only_the_thread_of_the_context_is_routed():
    pool = MemPool()
    pools = []
    with use_mem_pool(pool):
        thread = threading.Thread(target=lambda: pools.append(pool_of(block(MiB))))
        thread.start()
        thread.join()
        pools.append(pool_of(block(MiB)))
    assert pools == [(0, 0), pool.id]


def test_threads_use_pools_of_their_own():
    inside = threading.Barrier(3, timeout=60)
    found: dict[int, bool] = {}

    def run(number: int) -> None:
        pool = MemPool()
        with use_mem_pool(pool):
            inside.wait()  # all three are routed at once
            found[number] = all(pool_of(block(size)) == pool.id for size in (1, MiB, 3 * MiB))
            inside.wait()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {0: True, 1: True, 2: True}


def test_backward_allocates_outside_the_pool():
    pool = MemPool()
    x = torch.ones(MiB, device="accel", requires_grad=True)
    with use_mem_pool(pool):
        (x * 2).sum().backward()  # on a thread of the autograd engine, as in torch.cuda
    assert x.grad is not None
    assert pool_of(x.grad) == (0, 0)


def test_what_a_worker_allocates_for_a_fallback_comes_from_the_callers_pool():
    pool = MemPool()
    x = torch.ones(1000, device="accel")
    with use_mem_pool(pool):
        found = torch.nonzero(x)
    assert found.numel() == 1000
    assert pool_of(found) == pool.id
    assert pool_of(torch.nonzero(x)) == (0, 0)


def test_a_pool_is_used_on_the_device_of_the_context(script):
    script(
        """
        import torch
        from torch.accel.memory import MemPool, use_mem_pool, owner
        pool = MemPool()
        def block(device):
            return torch.empty(1000, device=device)
        with use_mem_pool(pool, device="accel:1"):
            x, y = block("accel:0"), block("accel:1")
        assert owner(x.data_ptr())["pool_id"] == (0, 0)
        assert owner(y.data_ptr())["pool_id"] == pool.id
        assert [s["device"] for s in pool.snapshot()] == [1]
        del y
        torch.accel.empty_cache()  # on accel:1 nobody keeps it
        assert pool.snapshot() == [] and pool.use_count() == 1
        """,
        ACCEL_DEVICES="2",
    )


def test_streams_have_their_own_blocks_in_a_pool():
    pool = MemPool()
    with use_mem_pool(pool):
        address = block(3 * MiB).data_ptr()
        with torch.Stream(device="accel"):
            assert block(3 * MiB).data_ptr() != address
        assert block(3 * MiB).data_ptr() == address


def test_no_split_gives_every_allocation_a_segment():
    pool = MemPool(no_split=True)
    with use_mem_pool(pool):
        tensors = [block(3 * MiB), block(3 * MiB)]
    assert [len(s["blocks"]) for s in segments(pool)] == [1, 1]
    del tensors


@pytest.mark.parametrize("use_on_oom", [True, False])
def test_a_pool_lends_its_memory_before_an_allocation_fails(script, use_on_oom):
    script(
        f"""
        import torch
        from torch.accel.memory import MemPool, use_mem_pool, owner
        pool = MemPool(use_on_oom={use_on_oom})
        with use_mem_pool(pool):
            torch.empty(40 << 20, dtype=torch.uint8, device="accel")
        torch.accel.synchronize()
        try:
            x = torch.empty(30 << 20, dtype=torch.uint8, device="accel").fill_(3)
        except torch.OutOfMemoryError as error:
            assert not {use_on_oom}
            assert "in private pools" not in str(error), error  # none is in use
        else:
            assert {use_on_oom} and owner(x.data_ptr())["pool_id"] == pool.id
            assert x.cpu().eq(3).all()
        """,
        ACCEL_MEMORY="64MiB",
    )


def test_an_allocation_in_a_full_device_names_the_pools_share(script):
    child = script(
        """
        import torch
        from torch.accel.memory import MemPool, use_mem_pool
        pool = MemPool()
        with use_mem_pool(pool):
            x = torch.empty(40 << 20, dtype=torch.uint8, device="accel")
        try:
            torch.empty(30 << 20, dtype=torch.uint8, device="accel")
        except torch.OutOfMemoryError as error:
            print(str(error).split(". ")[3])
        """,
        ACCEL_MEMORY="64MiB",
    )
    assert_expected_inline(
        child.stdout.strip(),
        """40.00 MiB is allocated by torch_accel (40.00 MiB of it in private pools), 0 bytes is reserved but unallocated""",
    )


def test_the_wait_of_a_dying_pool_is_for_its_own_streams(queued):
    busy = torch.Stream(device="accel")
    with busy, hold_stream(busy):
        outside = block(3 * MiB).fill_(1)
        del outside  # idle, with work of a held stream still queued
        with torch.Stream(device="accel"):
            pool = MemPool()
            with use_mem_pool(pool):
                block(3 * MiB)
            id = pool.id
            del pool  # would hang if it waited for `busy`
        assert _C._pool_use_count(0, id) == 0
        assert not busy.query()


def test_a_captured_streams_blocks_are_kept_until_the_capture_ends(queued):
    main, side = torch.Stream(device="accel"), torch.Stream(device="accel")
    pool = MemPool()
    addresses = []
    with side:
        _C._begin_allocate_current_stream_to_pool(0, pool.id)
    with side:
        x = block(3 * MiB)
        x.record_stream(main)  # not captured: its ticket says when
        addresses.append(x.data_ptr())
        del x
        torch.accel.synchronize()  # ACCEL_POISON fills it first
        assert block(3 * MiB).data_ptr() == addresses[0]
    with main:
        y = block(3 * MiB)
        assert pool_of(y) == (0, 0)  # the filter is of the stream
        y.record_stream(side)  # captured: nothing says when until the end
        address = y.data_ptr()
        del y
        other = block(3 * MiB)  # stays: what was freed last is taken first
        assert other.data_ptr() != address
        _C._end_allocate_to_pool(0, pool.id)
        _C._release_pool(0, pool.id)
        torch.accel.synchronize()
        assert block(3 * MiB).data_ptr() == address


def test_a_forked_child_may_drop_a_pool(script):
    script(
        """
        import os
        import torch
        pool = torch.accel.MemPool()
        with torch.accel.use_mem_pool(pool):
            x = torch.ones(3, device="accel")
        pid = os.fork()
        if pid == 0:
            del pool
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert pool.use_count() == 1 and x.sum().item() == 3
        """
    )


def test_there_are_no_pluggable_allocators():
    texts = []
    for call in (lambda: MemPool(object()), lambda: torch.accel.memory.change_current_allocator(object())):
        with pytest.raises(RuntimeError) as error:
            call()
        texts.append(str(error.value))
    assert texts[0] == texts[1]
    assert_expected_inline(
        texts[0],
        """torch.accel has no pluggable allocators: device memory comes from the chip's arenas, and reuse is ordered by the tickets of the caching allocator's blocks. PYTORCH_ALLOC_CONF configures it, torch.accel.MemPool keeps memory apart""",
    )
