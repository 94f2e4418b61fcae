"""What torch's example backend, OpenReg, tests of device, event, streams, memory, rng, misc: where it is here, and the rest.

test_device.py
    count, switch, context, switch_persistence, context_restoration -> python/test_device.py::test_two_devices
    invalid_device_index -> python/test_device.py::test_index_out_of_range
    device_capability -> python/test_accelerator.py::test_get_device_capability
    device_properties -> python/test_device.py::test_properties
    device_poison_fork -> python/test_fork.py::test_fork_with_live_tensors_while_another_thread_enqueues
    initialization_state -> python/test_device.py::test_lazy
    tensor_device, current_device_after_operations, concurrent_device_operations, state_after_errors
        -> python/test_openreg.py::test_threads_with_devices_of_their_own
    multiprocessing_spawn -> python/test_openreg.py::test_a_spawned_process_has_the_device
test_event.py
    create, query, record, wait_event, wait_stream, interleaved_stream_operations -> python/test_streams.py::test_event_orders_streams
    elapsed_time, timing_disabled -> runtime/test_events.py::test_elapsed_time_errors
    different_devices -> python/test_streams.py::test_with_two_devices
    synchronize, device_synchronization -> python/test_streams.py::test_other_threads_run_during_a_wait
    blocking_vs_non_blocking_synchronization -> python/test_openreg.py::test_blocking_events_wait_too
    multiple_streams_wait_same_event -> python/test_openreg.py::test_many_streams_wait_for_one_event
    event_lifecycle -> python/test_streams.py::test_an_event_recorded_again_or_destroyed_does_not_change_earlier_waits
    generic_stream_event, stream_compatibility -> python/test_streams.py::test_classes_mix
test_streams.py
    create, context, switch -> python/test_streams.py::test_stream_context
    synchronize, wait_stream, wait_event -> python/test_streams.py::test_wait_stream_and_record_event
    repr -> python/test_streams.py::test_repr
test_memory.py
    DeviceAllocator -> runtime/test_allocator.py::test_peak_and_accumulated_statistics
    MemoryLeaks -> python/test_openreg.py::test_nothing_is_left
    PinMemory -> python/test_accelerator.py::test_pinned_memory_uses_the_accelerator
    MultiDeviceAllocation -> python/test_device.py::test_devices_keep_their_own_state
    CrossDeviceOperations -> aten/test_copy.py::test_two_devices
test_rng.py
    generator, create_generator_and_seed, manual_seed, seed -> aten/test_random_generators.py::test_manual_seed_and_default_generator
    rng_state -> aten/test_random_generators.py::test_state_round_trip_midway
    offset_unsupported -> aten/test_random_generators.py::test_set_offset
test_misc.py
    BackendModule -> python/test_openreg.py::test_the_module_is_registered_once
    BackendProperty -> python/test_import.py::test_generated_methods
    TensorType -> python/test_types.py::test_tensor_types
"""

import gc
import re
from pathlib import Path

import pytest
import torch
from torch.accel.testing import hold_stream

TESTS = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("reference", sorted(set(re.findall(r"-> (\S+)", __doc__))))
def test_the_table_names_tests(reference):
    path, _, name = reference.partition("::")
    assert f"def {name}(" in (TESTS / path).read_text()


def test_threads_with_devices_of_their_own(two_devices):
    two_devices("""
        import threading
        import torch
        torch.accel.init()
        meeting, results = threading.Barrier(4), {}

        def work(number):
            device = number % 2
            torch.accel.set_device(device)
            x = torch.full((1000,), float(number), device="accel")
            meeting.wait()
            for _ in range(50):
                x = x + 1
                try:
                    torch.accel.set_device(7)
                except RuntimeError:
                    pass
            meeting.wait()
            results[number] = (torch.accel.current_device(), x.device.index, x.sum().item())

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert results == {n: (n % 2, n % 2, 1000.0 * (n + 50)) for n in range(4)}, results
        assert torch.accel.current_device() == 0
    """)


def test_a_spawned_process_has_the_device(script):
    script("""
        import torch
        import torch.multiprocessing as mp
        queue = mp.get_context("spawn").SimpleQueue()
        torch.ones(1, device="accel")
        process = mp.get_context("spawn").Process(
            target=exec, args=("import torch; queue.put(torch.arange(4.0, device='accel').sum().item())", {"queue": queue})
        )
        process.start()
        assert queue.get() == 6
        process.join()
        assert process.exitcode == 0
    """)


@pytest.mark.parametrize("blocking", [False, True])
def test_blocking_events_wait_too(blocking, queued):
    event, x = torch.accel.Event(blocking=blocking), torch.zeros(1000, device="accel")
    pinned = torch.empty(1000, pin_memory=True)
    torch.accel.synchronize()
    with hold_stream():
        pinned.copy_(x.fill_(3), non_blocking=True)
        event.record()
        assert not event.query()
    event.synchronize()
    assert event.query() and pinned.eq(3).all()


def test_many_streams_wait_for_one_event(queued):
    source, streams = torch.accel.Stream(), [torch.accel.Stream() for _ in range(5)]
    x = torch.zeros(100, device="accel")
    torch.accel.synchronize()
    results = []
    with hold_stream(source):
        with source:
            x.fill_(2)
        event = source.record_event()
        for stream in streams:
            stream.wait_event(event)
            with stream:
                results.append(x * 2)
        assert not any(stream.query() for stream in streams)
    torch.accel.synchronize()
    assert all(result.eq(4).all() for result in results)


def test_nothing_is_left():
    def step():
        x = torch.randn(300, 7, device="accel", requires_grad=True)
        views = [x[i::3].t() for i in range(3)]
        (sum(v.clone().mul_(2).sum() for v in views) + (x.to("cpu").to("accel") * x).sum()).backward()
        x.grad.resize_(0)
        torch.empty(5 << 20, device="accel")

    step()
    gc.collect()
    torch.accel.synchronize()
    before = torch.accel.memory_allocated()
    for _ in range(20):
        step()
    gc.collect()
    torch.accel.synchronize()
    assert torch.accel.memory_allocated() == before


def test_the_module_is_registered_once(script):
    script("""
        import torch, torch_accel
        assert torch.accel is torch_accel and torch.get_device_module("accel") is torch_accel
        assert torch.get_device_module() is torch_accel and torch.utils.backend_registration._privateuse1_backend_name == "accel"
        assert torch.device("privateuseone:0") == torch.device("accel:0")
        for call in (lambda: torch._register_device_module("accel", torch_accel),
                     lambda: torch.utils.rename_privateuse1_backend("other")):
            try:
                call()
            except RuntimeError as error:
                assert "accel" in str(error) or "already" in str(error), error
            else:
                raise AssertionError(call)
        torch.utils.rename_privateuse1_backend("accel")  # the same name again is no error
    """)
