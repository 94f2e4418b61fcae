"""torch.accelerator on accel: every function of its __all__, each with its effect."""

from pathlib import Path

import pytest
import torch
from torch.accel.testing import hold_stream

from tests.memory import settled

MiB = 1 << 20
TESTED_ELSEWHERE = {"Graph"}


def test_nothing_is_left_out():
    text = Path(__file__).read_text()
    missing = [
        name
        for name in torch.accelerator.__all__
        if name not in TESTED_ELSEWHERE and f"torch.accelerator.{name}" not in text
    ]
    assert not missing


def test_presence():
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("accel")
    assert torch.accelerator.current_accelerator(check_available=True) == torch.device("accel")
    assert torch.accelerator.device_count() == torch.accel.device_count()


def test_no_devices(script):
    script(
        """
        import torch
        assert not torch.accelerator.is_available() and torch.accelerator.device_count() == 0
        assert torch.accelerator.current_accelerator(check_available=True) is None
        assert torch.accelerator.memory_allocated() == 0
        torch.accelerator.empty_cache()
        """,
        ACCEL_DEVICES="0",
    )


def test_device_index(script):
    script(
        """
        import warnings, torch
        assert torch.accelerator.current_device_index() == 0
        torch.accelerator.set_device_index(1)
        assert torch.accelerator.current_device_index() == torch.accel.current_device() == 1
        torch.accelerator.set_device_index("accel:0")
        with torch.accelerator.device_index(1):
            assert torch.zeros(1, device="accel").device.index == 1
            with torch.accelerator.device_index(None):
                assert torch.accelerator.current_device_index() == 1
        assert torch.accelerator.current_device_index() == 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            torch.accelerator.set_device_idx(1)
            assert torch.accelerator.current_device_idx() == 1
        for bad in (2, "accel:2", 99):
            try:
                torch.accelerator.set_device_index(bad)
            except RuntimeError as error:
                assert "accel" in str(error), error
            else:
                raise AssertionError(bad)
        assert torch.accelerator.current_device_index() == 1
        stream = torch.Stream("accel:0")
        torch.accelerator.set_stream(stream)
        assert torch.accelerator.current_device_index() == 0
        assert torch.accelerator.current_stream() == stream
        assert torch.accelerator.current_stream("accel:1") == torch.accel.default_stream(1)
        """,
        ACCEL_DEVICES="2",
    )


def test_streams():
    before = torch.accelerator.current_stream()
    assert before == torch.accel.current_stream()
    stream = torch.Stream(device="accel")
    torch.accelerator.set_stream(stream)
    try:
        assert torch.accel.current_stream() == stream
    finally:
        torch.accelerator.set_stream(before)
    with stream:
        assert torch.accelerator.current_stream() == stream
    assert torch.accelerator.current_stream() == before


def test_torch_stream_and_event():
    stream, event = torch.Stream(device="accel"), torch.Event(device="accel", enable_timing=True)
    start = torch.Event(device="accel", enable_timing=True)
    with hold_stream(stream), stream:
        start.record()
        torch.accel._sleep(10_000_000)
        event.record()
        assert not event.query() and not stream.query()
    event.synchronize()
    assert stream.query() and start.elapsed_time(event) >= 10
    assert event.device.type == "accel"
    assert not stream.is_capturing()


def test_synchronize():
    side = torch.accel.Stream()
    with torch.accel.stream(side):
        torch.accel._sleep(300_000_000)
    assert not side.query()
    torch.accelerator.synchronize()
    assert side.query()
    torch.accelerator.synchronize("accel:0")


def test_synchronize_one_device_only(script):
    script(
        """
        import torch
        from torch.accel.testing import hold_stream
        with hold_stream(torch.accel.default_stream(1)):
            torch.accelerator.synchronize(0)
            assert not torch.accel.default_stream(1).query()
        torch.accelerator.synchronize(1)
        assert torch.accel.default_stream(1).query()
        """,
        ACCEL_DEVICES="2",
    )


def test_memory():
    before = settled()
    torch.accelerator.reset_peak_memory_stats()
    x = torch.empty(8 * MiB, dtype=torch.uint8, device="accel")
    assert torch.accelerator.memory_allocated() == before + 8 * MiB
    assert torch.accelerator.memory_reserved() >= before + 8 * MiB
    free, total = torch.accelerator.get_memory_info()
    assert 0 < free < total
    del x
    assert torch.accelerator.memory_allocated() == before
    assert torch.accelerator.max_memory_allocated() == before + 8 * MiB
    assert torch.accelerator.max_memory_reserved() >= torch.accelerator.memory_reserved()
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_reserved() <= torch.accelerator.max_memory_reserved() - 8 * MiB
    assert torch.accelerator.get_memory_info()[0] >= free + 8 * MiB
    torch.accelerator.reset_peak_memory_stats()
    assert torch.accelerator.max_memory_allocated() == before
    torch.accelerator.reset_accumulated_memory_stats()
    stats = torch.accelerator.memory_stats()
    assert stats["allocated_bytes.all.allocated"] == 0
    assert stats["allocated_bytes.all.current"] == before


def test_memory_agrees_with_the_device_module():
    x = torch.empty(3 * MiB, dtype=torch.uint8, device="accel")
    y = torch.empty(700, device="accel")
    del x
    read = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
    for reset in ("reset_peak_memory_stats", "reset_accumulated_memory_stats", "empty_cache"):
        for api in (torch.accelerator, torch.accel):
            getattr(api, reset)()
            for name in read:
                assert getattr(torch.accelerator, name)() == getattr(torch.accel, name)(), (reset, name)
            assert torch.accelerator.get_memory_info() == torch.accel.mem_get_info()
            # torch.accel's has the private pools besides, as torch.cuda's has
            assert torch.accelerator.memory_stats().items() <= torch.accel.memory_stats().items()
    assert torch.accelerator.memory_allocated("accel:0") == torch.accel.memory_allocated(0) >= 4 * y.numel()


def test_empty_host_cache():
    torch.accel.init()
    torch.accelerator.empty_host_cache()
    held = torch.accel.host_memory_stats()["allocated_bytes.current"]
    torch.empty(MiB, dtype=torch.uint8, pin_memory=True)
    assert torch.accel.host_memory_stats()["allocated_bytes.current"] >= held + MiB
    torch.accelerator.empty_host_cache()
    assert torch.accel.host_memory_stats()["allocated_bytes.current"] == held


def test_get_device_capability():
    dtypes = torch.accelerator.get_device_capability()["supported_dtypes"]
    assert {torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64} <= dtypes
    for dtype in dtypes - {torch.complex32}:  # torch warns that it is experimental
        assert torch.empty(2, dtype=dtype, device="accel").dtype == dtype


def test_pinned_memory_uses_the_accelerator():
    x = torch.ones(4).pin_memory()
    assert x.is_pinned() and not torch.ones(4).is_pinned()
    with hold_stream():
        y = x.to("accel", non_blocking=True)
    assert y.tolist() == [1] * 4


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_other_devices_are_refused(device):
    with pytest.raises(ValueError, match="accel"):
        torch.accelerator.synchronize(device)
