"""Devices: count, current device, properties, generators, bad arguments."""

import re

import pytest
import torch
from expecttest import assert_expected_inline

import torch_accel


def test_available_and_counted():
    assert torch.accel.is_available()
    assert torch.accel.device_count() >= 1
    assert torch.accel.current_device() == 0


def test_no_devices(script):
    script(
        """
        import torch
        assert not torch.accel.is_available() and torch.accel.device_count() == 0
        assert not torch.accelerator.is_available()
        torch.manual_seed(0)
        torch.accel.manual_seed(0); torch.accel.manual_seed_all(0); torch.accel.seed(); torch.accel.seed_all()
        assert torch.accel.get_rng_state_all() == []
        torch.accel.reset_peak_memory_stats(); torch.accel.reset_accumulated_memory_stats(); torch.accel.empty_cache()
        assert torch.accel.memory_allocated() == torch.accel.max_memory_reserved() == 0
        assert torch.accel.memory_stats() == torch.accel.memory_stats_as_nested_dict() == torch.accel.host_memory_stats()
        for use in (lambda: torch.ones(2, device="accel"), torch.accel.init, torch.accel.synchronize,
                    torch.accel.mem_get_info, torch.accel.current_stream, torch.accel.memory.arena):
            try:
                use()
            except RuntimeError as error:
                assert "accel" in str(error) and "ACCEL_DEVICES" in str(error), error
            else:
                raise AssertionError(use)
        assert torch.ones(2).sum() == 2
        """,
        ACCEL_DEVICES="0",
    )


@pytest.mark.parametrize("value", ["-1", "two", "1000000"])
def test_bad_device_count(script, value):
    result = script(
        """
        import torch
        assert not torch.accel.is_available()
        try:
            torch.ones(2, device="accel")
        except RuntimeError as error:
            print(error)
        assert torch.ones(2).sum() == 2
        """,
        ACCEL_DEVICES=value,
    )
    assert "ACCEL_DEVICES" in result.stdout and value in result.stdout


def test_the_name_is_the_beginning_of_no_other():
    """torch tells types apart by the beginning of a text in places: nor may another type begin with this one."""
    with pytest.raises(RuntimeError) as raised:
        torch.device("nosuchtype")
    others = re.search(r"one of (.*) device type", str(raised.value))[1].replace(",", "").split()
    assert {"cpu", "cuda", "xpu", "meta"} < set(others)
    assert not [other for other in others if other.startswith("accel") or "accel".startswith(other)]
    for text in ("accelerator", "accel2", "accelx:0", "acce", "Accel"):
        with pytest.raises(RuntimeError):
            torch.device(text)


def test_lazy(script):
    script("""
        import torch
        assert not torch.accel.is_initialized()
        torch.manual_seed(1); torch.accel.manual_seed(2)
        assert torch.accel.is_available() and torch.accel.device_count() == 1 and torch.accel.current_device() == 0
        assert torch.accel.memory_allocated() == 0 and torch.accel.memory_stats() == {}
        assert torch.accel.host_memory_stats() == {} and not torch.accel._is_in_bad_fork()
        assert not torch.accel.is_initialized()
        torch.ones(1, device="accel")
        assert torch.accel.is_initialized()
        torch.accel.init()
    """)


def test_two_devices(script):
    script(
        """
        import torch
        assert torch.accel.device_count() == 2
        with torch.accel.device(1):
            assert torch.accel.current_device() == 1
            x = torch.ones(2, device="accel")
            assert x.device == torch.device("accel", 1)
            with torch.accel.device(None), torch.accel.device(-1), torch.accel.device("accel"):
                assert torch.accel.current_device() == 1
        assert torch.accel.current_device() == 0
        with torch.accel.device_of(x):
            assert torch.accel.current_device() == 1
        with torch.accel.device_of(torch.ones(1)):
            assert torch.accel.current_device() == 0
        torch.accel.set_device("accel:1")
        assert torch.accel.current_device() == 1
        torch.accel.set_device(-1)
        assert torch.accel.current_device() == 1
        assert torch.accel._exchange_device(0) == 1 and torch.accel._maybe_exchange_device(-1) == 0
        torch.accel.synchronize(1)
        assert len(torch.accel.default_generators) == 2
        assert torch.accel.default_generators[1].device == torch.device("accel", 1)
        """,
        ACCEL_DEVICES="2",
    )


def test_current_device_is_a_threads_own(script):
    script(
        """
        import threading, torch
        torch.accel.set_device(1)
        seen = []
        thread = threading.Thread(target=lambda: seen.append(torch.accel.current_device()))
        thread.start(); thread.join()
        assert seen == [0] and torch.accel.current_device() == 1
        """,
        ACCEL_DEVICES="2",
    )


def test_properties():
    properties = torch.accel.get_device_properties()
    assert torch.accel.get_device_name("accel:0") == properties.name != ""
    free, total = torch.accel.mem_get_info()
    assert 0 < free <= total == properties.total_memory
    assert properties.cores == properties.multi_processor_count >= 1
    assert properties.lanes >= 1 and properties.sram_per_core > 0 and properties.clock_khz > 0
    assert properties.hbm_bytes_per_second > 0 and properties.link_bytes_per_second > 0
    assert properties.host_visible is True
    assert repr(properties).startswith(f"_AccelDeviceProperties(name='{properties.name}', total_memory=")


@pytest.mark.parametrize(
    "use",
    [
        torch_accel.set_device,
        torch_accel.synchronize,
        torch_accel.get_device_properties,
        torch_accel.mem_get_info,
        torch_accel.memory_allocated,
        torch_accel.current_stream,
        torch_accel.default_stream,
        torch_accel.get_rng_state,
        torch_accel.memory.arena,
        torch_accel.memory_summary,
        torch_accel.reset_peak_memory_stats,
        lambda index: torch.zeros(1, device=f"accel:{index}"),
        lambda index: torch_accel.device(index).__enter__(),
    ],
)
def test_index_out_of_range(use):
    torch.accel.init()
    for index in (torch.accel.device_count(), 100):
        with pytest.raises(RuntimeError, match=rf"accel.*{index}"):
            use(index)
    assert torch.accel.current_device() == 0


def test_index_texts(script):
    result = script(
        """
        import torch
        for use in (lambda: torch.accel.set_device(2), lambda: torch.zeros(1, device="accel:7"),
                    lambda: torch.accel.set_device(300), lambda: torch.accel.set_device("cpu"),
                    lambda: torch.accel.set_device("accel"), lambda: torch.accel.set_device(None),
                    lambda: torch.accel.set_device(1.0), lambda: torch.accel.current_stream(torch.device("cuda", 0))):
            try:
                use()
            except (RuntimeError, ValueError, TypeError) as error:
                print(f"{type(error).__name__}: {error}")
        """,
        ACCEL_DEVICES="2",
    )
    assert_expected_inline(
        result.stdout,
        """\
RuntimeError: accel: invalid device index 2; the devices are accel:0 to accel:1 (ACCEL_DEVICES sets how many)
RuntimeError: accel: invalid device index 7; the devices are accel:0 to accel:1 (ACCEL_DEVICES sets how many)
RuntimeError: accel: invalid device index 300; the largest is 127
ValueError: Expected an accel device, but got: cpu
ValueError: Expected an accel device with a specified index or an integer, but got: accel
ValueError: Expected an accel device with a specified index or an integer, but got: None
TypeError: Expected an accel device, its index or None, but got: 1.0
ValueError: Expected an accel device, but got: cuda:0
""",
    )


def test_generators_follow_torch_cuda():
    torch.accel.manual_seed(7)
    assert torch.accel.initial_seed() == 7
    state = torch.accel.get_rng_state()
    assert state.dtype == torch.uint8 and state.device.type == "cpu"
    first = torch.randn(8, device="accel")
    second = torch.randn(8, device="accel")
    assert not torch.equal(first.cpu(), second.cpu())
    torch.accel.set_rng_state(state, "accel:0")
    assert torch.equal(torch.randn(8, device="accel").cpu(), first.cpu())
    torch.accel.set_rng_state_all(torch.accel.get_rng_state_all())
    assert torch.equal(torch.randn(8, device="accel").cpu(), second.cpu())
    torch.accel.seed()
    assert torch.accel.initial_seed() != 7
    torch.accel.seed_all()
    torch.manual_seed(3)
    assert torch.accel.initial_seed() == 3
    with torch.random.fork_rng(device_type="accel"):
        inside = torch.randn(4, device="accel")
    assert torch.equal(torch.randn(4, device="accel").cpu(), inside.cpu())


def test_seeding_before_initialisation(script):
    result = script("""
        import torch
        def draw():
            return torch.rand(3, device="accel").tolist()
        torch.accel.manual_seed(1)
        torch.manual_seed(5)
        assert not torch.accel.is_initialized()
        late = draw()
        torch.accel.manual_seed(5)
        assert draw() == late
        print(late)
    """)
    again = script("""
        import torch
        generator = torch.Generator("accel").manual_seed(5)
        state = generator.get_state()
        print(torch.rand(3, device="accel", generator=generator).tolist())
    """)
    assert again.stdout == result.stdout


def test_set_state_copies():
    state = torch.Generator("accel").manual_seed(9).get_state()
    torch.accel.set_rng_state(state)
    state.zero_()
    assert torch.accel.initial_seed() == 9


def test_lazy_state_is_applied(script):
    script("""
        import torch
        state = torch.tensor([9] + [0] * 15, dtype=torch.uint8)
        torch.accel.set_rng_state(state)
        state.zero_()
        assert not torch.accel.is_initialized()
        assert torch.accel.initial_seed() == 9 and torch.accel.is_initialized()
    """)


def test_bad_lazy_state_raises_once(script):
    script("""
        import torch
        torch.accel.set_rng_state(torch.zeros(3, dtype=torch.uint8))
        try:
            torch.accel.init()
        except RuntimeError as error:
            assert "state" in str(error), error
        else:
            raise AssertionError
        assert torch.ones(2, device="accel").tolist() == [1, 1]
    """)


def test_default_generators():
    generator = torch.accel.default_generators[0]
    assert generator.device == torch.device("accel", 0)
    generator.manual_seed(11)
    assert torch.accel.initial_seed() == 11


def test_amp_and_dtypes():
    assert torch.accel.get_amp_supported_dtype() == [torch.float16, torch.bfloat16]
    assert torch.accel.amp.get_amp_supported_dtype() == torch.accel.get_amp_supported_dtype()
    assert torch.accel.is_bf16_supported()


def test_peers_read_one_another(two_devices):
    two_devices("""
        import torch
        assert torch.accel.can_device_access_peer(0, 1) and torch.accel.can_device_access_peer("accel:1", "accel:0")
        assert not torch.accel.can_device_access_peer(1, 1)
        with torch.accel.device(1):
            assert not torch.accel.can_device_access_peer(None, 1)
        for wrong in ((0, 2), (2, 0)):
            try:
                torch.accel.can_device_access_peer(*wrong)
            except RuntimeError as error:
                assert "invalid device index 2" in str(error)
            else:
                raise AssertionError
        x = torch.arange(5.0, device="accel:0")
        assert torch.zeros(5, device="accel:1").copy_(x).tolist() == x.tolist()  # the copy that True promises
    """)


def test_devices_keep_their_own_state(two_devices):
    two_devices("""
        import torch
        torch.accel.init()
        torch.accel.empty_cache()
        used = [torch.accel.device_memory_used(d) for d in (0, 1)]
        with torch.accel.device(1):
            x = torch.empty(32 << 20, dtype=torch.uint8, device="accel")
            assert torch.accel.memory_allocated() >= 32 << 20
        assert torch.accel.device_memory_used(0) == used[0] and torch.accel.device_memory_used(1) == used[1] + (32 << 20)
        del x
        assert torch.accel.device_memory_used("accel:1") == used[1] + (32 << 20)  # the cache's
        torch.accel.empty_cache()
        assert torch.accel.device_memory_used(1) == used[1]

        torch.accel.manual_seed_all(3)
        torch.rand(10, device="accel:0")
        states = torch.accel.get_rng_state_all()
        assert not torch.equal(*states)
        torch.accel.manual_seed_all(3)
        assert torch.equal(torch.rand(10, device="accel:0").cpu(), torch.rand(10, device="accel:1").cpu())
        with torch.random.fork_rng([1], device_type="accel"):
            first = torch.rand(3, device="accel:1")
            torch.rand(3, device="accel:0")
        assert torch.equal(torch.rand(3, device="accel:1").cpu(), first.cpu())
    """)


def test_visible_devices(script):
    script(
        """
        import torch
        assert torch.accel.device_count() == torch.accelerator.device_count() == 2
        x = torch.ones(2, device="accel:1")
        assert x.device.index == 1 and (x + 1).tolist() == [2, 2]
        for use in (lambda: torch.ones(1, device="accel:2"), lambda: torch.accel.set_device(3)):
            try:
                use()
            except RuntimeError as error:
                assert "the devices are accel:0 to accel:1" in str(error)
            else:
                raise AssertionError
        """,
        ACCEL_DEVICES="4",
        ACCEL_VISIBLE_DEVICES="3,1",
    )


def test_number_formats():
    assert torch.accel.is_tf32_supported() is False
    x = torch.tensor([1 + 2.0**-20], device="accel")
    assert torch.mm(x[None], torch.ones(1, 1, device="accel")).item() == x.item()  # TF32 would lose the bit
    assert torch.accel.has_half and torch.ones(2, dtype=torch.half, device="accel").sum().item() == 2
