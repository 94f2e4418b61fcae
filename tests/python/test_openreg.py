"""What torch's example backend, OpenReg, tests, and where it is here.

test_autocast.py
    openreg_autocast_error_message -> autocast/test_composition.py::test_an_unsupported_dtype_warns_and_disables
    openreg_autocast_float16_supported -> autocast/test_policies.py::test_lower_precision
    openreg_autocast_float32_supported -> autocast/test_policies.py::test_fp32
    autocast_fast_dtype -> autocast/test_autocast.py::test_default_dtype_is_float16
test_autograd.py
    autograd_init -> autograd/test_devices.py::test_with_two_devices
test_device.py
    device_count, device_switch, device_context, device_switch_persistence, device_context_restoration
        -> python/test_device.py::test_two_devices
    device_guard -> python/test_accelerator.py::test_device_index
    device_count_consistency -> python/test_accelerator.py::test_presence
    invalid_device_index -> python/test_device.py::test_index_out_of_range
    device_capability -> python/test_accelerator.py::test_get_device_capability
    device_properties -> python/test_device.py::test_properties
    device_poison_fork -> python/test_fork.py::test_fork_with_live_tensors_while_another_thread_enqueues
    device_initialization_state -> python/test_device.py::test_lazy
    tensor_device, current_device_after_operations, concurrent_device_operations, device_state_after_errors
        -> python/test_openreg.py::test_threads_with_devices_of_their_own
    device_multiprocessing_spawn -> python/test_openreg.py::test_a_spawned_process_has_the_device
test_device_type.py
    to_device, copy_, copy_from_cpu, copy_to_cpu, round_trip -> aten/test_copy.py::test_geometry
    to_device_with_copy -> aten/test_copy.py::test_a_copy_is_made_where_it_is_asked_for
    clone -> aten/test_copy.py::test_clones_have_the_cpus_strides_and_memory_of_their_own
    cpu_only_feature, cuda_only_feature, skip_on_cpu, skip_on_cuda, native_device_only, privateuse1_only,
        conditional_skip_privateuse1, runtime_skip_pattern, tensor_operations, basic_tensor_creation, dtype_propagation
        -> ops/test_torch_testing.py::test_marks_exclusions_and_dtypes
test_event.py
    event_create, event_query, event_record, event_wait_event, event_wait_stream, interleaved_stream_operations
        -> python/test_streams.py::test_event_orders_streams
    event_elapsed_time, event_timing_disabled
        -> runtime/test_events.py::test_elapsed_time_errors, runtime/test_events.py::test_times_are_of_the_device
    event_different_devices -> python/test_streams.py::test_with_two_devices
    event_synchronize, device_synchronization -> python/test_streams.py::test_other_threads_run_during_a_wait
    blocking_vs_non_blocking_synchronization -> python/test_openreg.py::test_blocking_events_wait_too
    multiple_streams_wait_same_event -> python/test_openreg.py::test_many_streams_wait_for_one_event
    event_lifecycle -> python/test_streams.py::test_an_event_recorded_again_or_destroyed_does_not_change_earlier_waits
    generic_stream_event, stream_compatibility -> python/test_streams.py::test_classes_mix
test_ipc.py
    basic_tensor_roundtrip, offset_tensor_roundtrip, strided_tensor_roundtrip
        -> runtime/test_ipc.py::test_what_arrives_is_what_was_sent
    received_via_ipc_cannot_be_reshared -> runtime/test_ipc.py::test_what_was_received_cannot_be_sent_on
    producer_exits_cleanly_with_tensor_in_limbo -> runtime/test_ipc.py::test_ends_of_senders
test_memory.py
    basic_allocation, large_allocation -> runtime/test_allocator.py::test_sizes
    memory_lifecycle -> runtime/test_allocator.py::test_peak_and_accumulated_statistics
    sequential_allocations_and_deallocations -> runtime/test_allocator.py::test_live_blocks_never_overlap
    tensor_copy_operations -> aten/test_copy.py::test_geometry
    tensor_shallow_copy -> modules/test_data.py::test_data_takes_the_place
    inplace_operations -> aten/test_structured.py::test_in_place_returns_self_and_keeps_memory
    view_operations -> aten/test_view.py::test_aliases
    different_dtypes -> aten/test_factory.py::test_dtypes
    tensor_resize -> aten/test_resize.py::test_resize
    empty_cache_operation -> python/test_memory.py::test_empty_cache
    memory_format_allocation -> aten/test_factory.py::test_memory_format
    allocation_with_requires_grad -> python/test_openreg.py::test_nothing_is_left
    storage_operations -> runtime/test_storage.py::test_as_on_the_cpu
    tensor_from_blob -> python/test_dlpack.py::test_a_capsule_shares_the_memory
    no_leak_simple_allocations, no_leak_varying_sizes, no_leak_with_copies, no_leak_with_views,
        no_leak_inplace_operations, no_leak_with_gradients, no_leak_repeated_large_allocations,
        leak_detection_with_statistics
        -> python/test_openreg.py::test_nothing_is_left
    pin_memory -> python/test_accelerator.py::test_pinned_memory_uses_the_accelerator
    allocation_on_device_1, simultaneous_device_allocations, memory_isolation_between_devices,
        alternating_device_allocations
        -> python/test_device.py::test_devices_keep_their_own_state
    tensor_to_different_device, bidirectional_device_transfer -> aten/test_copy.py::test_two_devices
test_misc.py
    backend_module_name, profiler_activity_alias, device_type_alias, backend_module_registration,
        backend_module_function, backend_module_function_error_handling
        -> python/test_openreg.py::test_the_module_is_registered_once
    backend_generate_methods, backend_tensor_methods, backend_module_methods, backend_storage_methods,
        backend_packed_sequence_methods, backend_packed_sequence_properties
        -> python/test_import.py::test_generated_methods
    backend_tensor_methods_different_devices -> python/test_import.py::test_generated_methods_take_a_device
    backend_tensor_type, backend_type_methods -> python/test_types.py::test_tensor_types
    backend_storage_type_consistency -> python/test_types.py::test_storage_types
test_opinfo.py
    op_basic_functionality, out_argument, noncontiguous_samples -> ops/test_conformance.py::test_everything
test_ops.py
    empty, zeros, tensor, ones, ones_like, full
        -> aten/test_factory.py::test_dtypes, aten/test_default_device.py::test_new_things_are_on_accel,
        aten/test_factory.py::test_values_against_numpy
    empty_with_memory_format -> aten/test_factory.py::test_memory_format
    empty_strided -> aten/test_factory.py::test_empty_strided
    randn -> aten/test_random_fills.py::test_normal_is_tl_randn
    copy_same_device, cross_device_copy -> aten/test_copy.py::test_geometry
    cross_diff_devices_copy -> aten/test_copy.py::test_two_devices
    copy_different_dtypes -> aten/test_copy.py::test_dtypes
    clone -> aten/test_copy.py::test_clones_have_the_cpus_strides_and_memory_of_their_own
    copy_non_blocking -> aten/test_copy.py::test_from_pinned_is_queued, aten/test_copy.py::test_to_pinned_is_queued
    masked_select -> aten/test_fallback_results.py::test_equals_the_cpu[masked_select]
    expand, view, reshape, as_strided -> aten/test_view.py::test_aliases
    resize -> aten/test_resize.py::test_resize
    set_tensor, set_storage
        -> aten/test_resize.py::test_set[set_ to a tensor], aten/test_resize.py::test_set[set_ to a storage]
    local_scalar_dense -> aten/test_copy.py::test_item
    printing -> python/test_openreg.py::test_a_tensor_prints_as_the_cpus_with_its_device
    backend_dispatchstub, abs_contiguous, abs_non_contiguous, abs_out
        -> aten/test_shapes_pointwise.py::test_unary, aten/test_shapes_pointwise.py::test_out
    custom_abs -> docs/test_custom_operators.py::test_values
    quantize, quantize_per_tensor_different_scales, quantize_per_tensor_quint8, dequantize
        -> aten/test_quantized.py::test_no_quantized_tensors
    compile_autograd_function_returns_self, compile_autograd_function_aliasing
        -> autograd/test_function.py::test_a_compiled_function
    custom_autograd_fn_returns_self_basic, custom_autograd_fn_returns_self_no_grad
        -> autograd/test_function.py::test_a_result_that_is_an_input
    custom_autograd_fn_aliasing_basic, custom_autograd_fn_aliasing_no_grad
        -> autograd/test_function.py::test_a_result_that_is_a_view_of_an_input
    scalar_type_fallback, tensor_type_fallback, tensorlist_type_fallback, fallback_operations, fallback_with_scalars
        -> aten/test_fallback_results.py::test_equals_the_cpu
    cpu_fallback_blocklist -> aten/test_fallback_report.py::test_forbidden
    fused_sdp_choice_privateuseone, fused_sdp_choice_with_mask -> aten/test_attention.py::test_choice_is_the_cpus
    scaled_dot_product_fused_attention_overrideable, scaled_dot_product_fused_attention_overrideable_backward,
        scaled_dot_product_attention_is_causal
        -> aten/test_attention.py::test_the_chosen_kernel_equals_the_math_path
    scaled_dot_product_attention_with_dropout -> aten/test_attention.py::test_dropout_is_the_formula
    maximum_functional, minimum_ext_structured_meta_functional
        -> aten/test_structured.py::test_every_structured_operator_has_one_kernel
    maximum_out, minimum_ext_structured_meta_out -> aten/test_structured.py::test_out_is_resized_with_torchs_warning
test_rng.py
    generator, create_generator_and_seed, manual_seed, seed
        -> aten/test_random_generators.py::test_manual_seed_and_default_generator
    rng_state -> aten/test_random_generators.py::test_state_round_trip_midway
    offset_unsupported -> aten/test_random_generators.py::test_set_offset
test_rnn.py
    lstm_basic, lstm_multi_layer, lstm_bidirectional, lstm_batch_first, lstm_with_initial_hidden, lstm_cpu_parity
        -> aten/test_rnn.py::test_equals_the_cpu
    lstm_packed_sequence -> aten/test_rnn.py::test_packed_sequence
test_sdpa.py
    fused_sdp_choice_privateuseone -> aten/test_attention.py::test_choice_is_the_cpus
    scaled_dot_product_fused_attention_overrideable, scaled_dot_product_fused_attention_overrideable_backward
        -> aten/test_attention.py::test_the_chosen_kernel_equals_the_math_path
test_storage.py
    rewrapped_storage -> runtime/test_storage.py::test_a_storage_is_rewrapped
    serialization -> runtime/test_serialization.py::test_round_trip
    open_device_numpy_serialization, open_device_cpu_serialization
        -> runtime/test_serialization.py::test_a_tensor_that_is_pickled_by_its_values
    serialization_metadata_preservation -> runtime/test_serialization.py::test_math_bits_survive
    copy_backend_meta -> runtime/test_backend_meta.py::test_goes_along
    fake_tensor_metadata_preservation, fake_tensor_metadata_preservation_functional
        -> aten/test_meta.py::test_fake_tensors_foresee_the_real_ones
    serialization_map_location_cpu, serialization_map_location_device
        -> runtime/test_serialization.py::test_every_form_of_map_location
    serialization_storage_location_tag, serialization_default_restore_location
        -> runtime/test_serialization.py::test_storages_are_tagged_and_restored
test_streams.py
    stream_create, stream_context, stream_switch -> python/test_streams.py::test_stream_context
    stream_synchronize, stream_wait_stream, stream_wait_event
        -> python/test_streams.py::test_wait_stream_and_record_event
    stream_repr -> python/test_streams.py::test_repr
test_testing.py
    bypass_only_cuda, bypass_only_on, vaildate_bypass_execution, op_overrides, op_allowlist, test_exclusions
        -> ops/test_torch_testing.py::test_marks_exclusions_and_dtypes
test_utils.py
    open_device_dlpack -> python/test_dlpack.py::test_from_dlpack_of_a_tensor
C++, third_party/openreg/tests
    device_tests -> driver/test_config.py::test_devices
    event_tests -> driver/test_events.py::test_a_wait_orders_two_streams, driver/test_events.py::test_elapsed_time
    memory_tests -> driver/test_memory.py::test_memory_runs_out_and_comes_back, driver/test_copy.py::test_every_pair
    stream_tests -> driver/test_streams.py::test_launches_run_in_order, driver/test_streams.py::test_wrong_arguments
    tracer_tests -> driver/test_launch.py::test_the_tracer_sees_every_launch

C++, tests/cpp
    test_openreg_backend_meta -> docs/test_custom_operators.py::test_flags_are_the_kernels_to_read

Of subjects that are to come: test_compile.py, test_distributed.py, test_profiler.py, test_openreg_tracer.cpp and
test_openreg_activity_profiler.cpp.
"""

import gc

import pytest
import torch
from torch.accel.testing import hold_stream

from tests.memory import settled
from tests.tables import exists, references, rows


@pytest.mark.parametrize("reference", references(__doc__))
def test_the_table_names_tests(reference):
    assert exists(reference)


def test_every_row_names_one():
    assert all(tests for _, tests in rows(__doc__))


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


PRINTED = {
    "integers": lambda d: torch.arange(6, device=d).view(2, 3),
    "floats": lambda d: torch.tensor([1.5, -2e10, float("nan")], device=d),
    "complex": lambda d: torch.tensor([1 + 2j], device=d).conj(),
    "bool": lambda d: torch.tensor(True, device=d),
    "nothing": lambda d: torch.empty(0, 3, device=d),
    "bfloat16": lambda d: torch.ones(2, dtype=torch.bfloat16, device=d),
    "a leaf": lambda d: torch.ones(2, device=d, requires_grad=True),
    "a result": lambda d: torch.ones(2, device=d, requires_grad=True) * 2,
    "too many": lambda d: torch.zeros(2000, device=d),
    "a parameter": lambda d: torch.nn.Parameter(torch.ones(1, device=d)),
}


@pytest.mark.parametrize("make", PRINTED.values(), ids=PRINTED.keys())
def test_a_tensor_prints_as_the_cpus_with_its_device(make):
    ours = repr(make("accel"))
    assert "device='accel:0'" in ours
    assert "".join(ours.split()).replace(",device='accel:0'", "") == "".join(repr(make("cpu")).split())


def test_nothing_is_left():
    def step():
        x = torch.randn(300, 7, device="accel", requires_grad=True)
        views = [x[i::3].t() for i in range(3)]
        (sum(v.clone().mul_(2).sum() for v in views) + (x.to("cpu").to("accel") * x).sum()).backward()
        x.grad.resize_(0)
        torch.empty(5 << 20, device="accel")

    step()
    before = settled()
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
        assert torch._C._get_privateuse1_backend_name() == "accel"
        # The names under which torch lists the device elsewhere.
        assert torch.profiler.ProfilerActivity.ACCEL is torch.profiler.ProfilerActivity.PrivateUse1
        assert torch.autograd.DeviceType.ACCEL is torch.autograd.DeviceType.PrivateUse1
        assert torch.autograd.DeviceType.ACCEL.name == "ACCEL"
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
