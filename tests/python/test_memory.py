"""Memory: statistics, arenas, NumPy views, pinned memory."""

import gc
import re

import numpy as np
import pytest
import torch
from expecttest import assert_expected_inline
from torch.accel.testing import hold_stream

from tests.memory import settled

MiB = 1 << 20


def test_allocated_and_reserved():
    before = settled()
    torch.accel.reset_peak_memory_stats()
    x = torch.empty(4 * MiB, dtype=torch.uint8, device="accel")
    assert torch.accel.memory_allocated() == before + 4 * MiB
    assert torch.accel.memory_reserved() >= torch.accel.memory_allocated()
    del x
    assert torch.accel.memory_allocated() == before
    assert torch.accel.max_memory_allocated() == before + 4 * MiB
    assert torch.accel.max_memory_reserved() >= before + 4 * MiB
    torch.accel.reset_peak_memory_stats()
    assert torch.accel.max_memory_allocated() == before


def test_empty_cache():
    x = torch.empty(64 * MiB, dtype=torch.uint8, device="accel")
    torch.accel.synchronize()
    free, total = torch.accel.mem_get_info()
    del x
    assert torch.accel.mem_get_info() == (free, total)  # cached, not free
    reserved = torch.accel.memory_reserved()
    torch.accel.empty_cache()
    assert torch.accel.memory_reserved() <= reserved - 64 * MiB
    assert torch.accel.mem_get_info()[0] >= free + 64 * MiB


def test_stats():
    gc.collect()  # garbage freed between the two readings would tell them apart
    kept = torch.ones(1, device="accel")
    stats = torch.accel.memory_stats()
    nested = torch.accel.memory_stats_as_nested_dict()
    assert stats["allocated_bytes.all.current"] == nested["allocated_bytes"]["all"]["current"]
    for key in ("num_ooms", "num_alloc_retries", "active.small_pool.peak", "segment.large_pool.freed"):
        assert stats[key] >= 0
    torch.accel.reset_accumulated_memory_stats()
    assert torch.accel.memory_stats()["allocation.all.allocated"] == 0
    del kept


def test_host_stats():
    x = torch.ones(1000, pin_memory=True)
    assert x.is_pinned()
    stats = torch.accel.host_memory_stats()
    assert stats["active_bytes.current"] >= 4000
    assert stats["active_requests.current"] >= 1
    assert list(stats) == sorted(stats)
    torch.accel.memory.reset_peak_host_memory_stats()
    torch.accel.memory.reset_accumulated_host_memory_stats()
    del x
    torch.accel.empty_host_cache()


def test_summary(script):
    result = script("""
        import torch
        x = torch.ones(1024, 1024, device="accel")
        del x
        print(torch.accel.memory_summary(), end="")
        short = torch.accel.memory_summary(abbreviated=True)
        assert "from large pool" not in short and len(short) < len(torch.accel.memory_summary())
    """)
    assert {len(line) for line in result.stdout.splitlines()} == {77}
    assert_expected_inline(
        re.sub(r"\n.*Tot Freed.*(?s:.*)", "", result.stdout),
        """\
|===========================================================================|
|                  PyTorch accel memory summary, device ID 0                |
|---------------------------------------------------------------------------|
|            accel OOMs: 0           |        accelMalloc retries: 0        |
|===========================================================================|""",
    )


def test_out_of_memory(script):
    result = script(
        """
        import torch
        keep = torch.full((1000,), 3.0, device="accel")
        try:
            torch.empty(65 << 20, dtype=torch.uint8, device="accel")
        except torch.OutOfMemoryError as error:
            print(error)
        assert keep.sum().item() == 3000
        assert torch.empty(32 << 20, dtype=torch.uint8, device="accel").numel() == 32 << 20
        assert torch.accel.memory_stats()["num_ooms"] == 1
        """,
        ACCEL_MEMORY="64MiB",
    )
    assert "accel" in result.stdout


def test_arena():
    arena = torch.accel.memory.arena()
    assert arena.dtype == np.uint8 and arena.shape == (torch.accel.get_device_properties().total_memory,)
    x = torch.arange(16, dtype=torch.uint8, device="accel")
    view = torch.accel.memory.numpy(x)
    offset = view.__array_interface__["data"][0] - arena.__array_interface__["data"][0]
    assert (arena[offset : offset + 16] == np.arange(16)).all()
    arena[offset] = 42
    assert x[0].item() == 42


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint16,
        torch.uint32,
        torch.uint64,
        torch.float16,
        torch.float32,
        torch.float64,
        torch.complex64,
        torch.complex128,
    ],
)
def test_numpy_dtypes(dtype):
    host = torch.tensor([0, 1, 2], dtype=torch.int64).to(dtype)
    array = torch.accel.memory.numpy(host.to("accel"))
    assert array.dtype == host.numpy().dtype and (array == host.numpy()).all()


def test_numpy_is_a_view():
    host = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    x = host.to("accel")
    for index in ((slice(1, 3), slice(None, None, 2)), (slice(None), 3), (0, 0), (slice(2, 2),)):
        array = torch.accel.memory.numpy(x[index])
        expected = host[index].numpy()
        assert array.shape == expected.shape and (array == expected).all()
        if expected.size:
            assert array.strides == expected.strides
    assert (torch.accel.memory.numpy(x.t()) == host.t().numpy()).all()
    assert (torch.accel.memory.numpy(x[:, :1].expand(4, 3)) == host[:, :1].expand(4, 3).numpy()).all()
    array = torch.accel.memory.numpy(x)
    x.fill_(7)
    torch.accel.synchronize()
    assert (array == 7).all()


def test_numpy_is_read_only():
    array = torch.accel.memory.numpy(torch.ones(2, device="accel"))
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.flags.writeable = True


def test_numpy_keeps_the_memory():
    before = settled()
    array = torch.accel.memory.numpy(torch.full((MiB,), 5, dtype=torch.uint8, device="accel"))[10:20][::2]
    others = [torch.zeros(MiB, dtype=torch.uint8, device="accel") for _ in range(4)]
    torch.accel.synchronize()
    assert (array == 5).all()
    assert torch.accel.memory_allocated() == before + 5 * MiB
    del array, others
    assert torch.accel.memory_allocated() == before


def test_numpy_of_a_tensor_that_requires_grad():
    x = torch.ones(2, device="accel", requires_grad=True)
    assert (torch.accel.memory.numpy(x * 2) == 2).all()


def test_numpy_waits():
    x = torch.zeros(4, device="accel")
    side = torch.accel.Stream()
    torch.accel.synchronize()
    with torch.accel.stream(side):
        torch.accel._sleep(30_000_000)
        x.add_(1)
    assert (torch.accel.memory.numpy(x) == 1).all()


def numpy_errors():
    return [
        torch.ones(2),
        torch.ones(2, device="meta"),
        torch.ones(2, device="accel", dtype=torch.bfloat16),
        torch.ones(2, device="accel").to(torch.float8_e4m3fn),
        torch.ones(2, device="accel", dtype=torch.complex64).conj(),
        torch.ones(2, device="accel", dtype=torch.complex64).conj().imag,
    ]


def test_numpy_errors():
    texts = []
    for tensor in numpy_errors():
        with pytest.raises((TypeError, RuntimeError)) as error:
            torch.accel.memory.numpy(tensor)
        texts.append(f"{error.type.__name__}: {error.value}")
    assert_expected_inline(
        "\n".join(texts),
        """\
TypeError: Expected an accel tensor, but got one on cpu; move it with .to('accel')
TypeError: Expected an accel tensor, but got one on meta; move it with .to('accel')
TypeError: NumPy has no type for torch.bfloat16, the dtype of this accel tensor; view its bytes with .view(torch.int16)
TypeError: NumPy has no type for torch.float8_e4m3fn, the dtype of this accel tensor; view its bytes with .view(torch.uint8)
RuntimeError: NumPy cannot show the bytes of an accel tensor whose conj bit is set; use .resolve_conj()
RuntimeError: NumPy cannot show the bytes of an accel tensor whose neg bit is set; use .resolve_neg()""",
    )


def test_numpy_remedies():
    x = torch.ones(2, device="accel")
    assert (torch.accel.memory.numpy(x.bfloat16().view(torch.int16)) == 0x3F80).all()
    z = torch.tensor([1 + 2j]).to("accel")
    assert torch.accel.memory.numpy(z.conj().resolve_conj())[0] == 1 - 2j
    assert torch.accel.memory.numpy(z.conj().imag.resolve_neg())[0] == -2


def test_record_stream_keeps_memory_until_the_stream_is_done():
    side = torch.accel.Stream()
    x = torch.full((MiB,), 1, dtype=torch.uint8, device="accel")
    side.wait_stream(torch.accel.current_stream())
    y = torch.zeros_like(x)
    torch.accel.synchronize()
    with hold_stream(side):
        with torch.accel.stream(side):
            y.copy_(x)
        x.record_stream(side)
        address = x.data_ptr()
        del x
        z = torch.full((MiB,), 9, dtype=torch.uint8, device="accel")
        assert z.data_ptr() != address
    side.synchronize()
    assert (torch.accel.memory.numpy(y) == 1).all()


def test_caching_can_be_turned_off_and_on_again():
    torch.accel.empty_cache()
    try:
        torch.accel.caching_allocator_enable(False)
        x = torch.empty(3 << 20, dtype=torch.uint8, device="accel")
        torch.accel.synchronize()
        reserved = torch.accel.memory_reserved()
        del x
        torch.empty(1, device="accel")
        assert torch.accel.memory_reserved() < reserved
    finally:
        torch.accel.caching_allocator_enable()
    x = torch.empty(3 << 20, dtype=torch.uint8, device="accel")
    reserved = torch.accel.memory_reserved()
    del x
    assert torch.accel.memory_reserved() == reserved


def test_nested_host_statistics():
    torch.empty(1 << 20, dtype=torch.uint8, pin_memory=True)
    nested, flat = torch.accel.host_memory_stats_as_nested_dict(), torch.accel.host_memory_stats()
    assert nested["allocated_bytes"]["current"] == flat["allocated_bytes.current"] >= 1 << 20
    assert nested["num_host_alloc"] == flat["num_host_alloc"]
