"""What caught other backends out, by the numbers of the list of behaviours, and the tests that show it holds here.

1. Copies, views, strides
    1 gaps to gaps, device to host: what lies between stays -> aten/test_copy.py::test_geometry[into gaps from gaps]
    2 host to device from an offset, also of rank 2
        -> aten/test_copy.py::test_geometry[from an offset], aten/test_copy.py::test_geometry[from an offset of rank 2]
    3 expanded to the host: values -> aten/test_behaviours.py::test_03_copy_of_an_expanded_tensor_to_the_host
    3 expanded to the host: no byte behind it
        -> aten/test_behaviours.py::test_03_nothing_is_read_beyond_an_expanded_tensor
    4 offset and stride in one operand, eager, compiled, sliced inside
        -> aten/test_behaviours.py::test_04_offset_and_stride_together
    5 copy into a 0-dim view -> aten/test_copy.py::test_geometry[0-dim view]
    6 rows of no round width -> aten/test_behaviours.py::test_06_rows_that_are_not_round
    7 matmul into a slice -> aten/test_behaviours.py::test_07_product_into_a_slice
    8 out= of add, sum, cumsum, where, cat into transposed and strided views
        -> aten/test_fallback_out.py::test_out[transposed], aten/test_fallback_out.py::test_out[slice],
        aten/test_structured.py::test_strided_out
    9 addcdiv_, clamp_, masked_fill_ of transposed tensors, bitwise of a strided one
        -> aten/test_fallback_out.py::test_in_place[in-place on transposed],
        aten/test_fallback_out.py::test_in_place[clamp_ of transposed],
        aten/test_fallback_out.py::test_in_place[masked_fill_ of transposed],
        aten/test_fallback_out.py::test_in_place[bitwise_ of strided]
    10 in place on a view of a view: gradient, base, version
        -> autograd/test_grad.py::test_10_in_place_on_a_view_of_a_view
    11 overlapping windows at an offset, read and index_select -> aten/test_view.py::test_overlapping_windows
    12 in place on an expanded tensor raises
        -> aten/test_overlap.py::test_as_the_cpu[in-place unary, expanded],
        aten/test_overlap.py::test_as_the_cpu[in-place binary, expanded]
    13 storage.resize_: frees, restores, keeps metadata and prefix, moves
        -> aten/test_resize.py::test_storage_resize, aten/test_resize.py::test_storage_growth_keeps_the_prefix
    14 conjugated: all copies, clone, contiguous -> aten/test_copy.py::test_math_bits_of_the_source[conj]
    15 negated: all copies, clone -> aten/test_copy.py::test_math_bits_of_the_source[neg]
    15 every layer of operators over math bits
        -> aten/test_math_bits.py::test_read, aten/test_math_bits.py::test_written,
        aten/test_math_bits.py::test_gradients

2. Zero-size, dtypes, indexing
    16 products, reductions and backward of nothing
        -> aten/test_behaviours.py::test_16_nothing_is_computed_with,
        aten/test_behaviours.py::test_16_backward_of_nothing
    17 an empty source -> aten/test_behaviours.py::test_17_an_empty_source_changes_nothing
    18 repeated indices accumulate, all floats, compiled -> aten/test_behaviours.py::test_18_repeated_indices_accumulate
    19 scatters of many duplicates
        -> aten/test_behaviours.py::test_19_scatter_reduce_of_many_duplicates,
        aten/test_behaviours.py::test_19_against_numpy
    20 TransformerEncoder on its fast path
        -> aten/test_behaviours.py::test_20_transformer_encoder, aten/test_transformer.py::test_the_fast_path_is_queued
    21 casts of what no integer holds -> aten/test_behaviours.py::test_21_casts_of_what_no_integer_holds_are_the_cpus

3. Fallback
    22 predicates have the full shape -> aten/test_behaviours.py::test_22_predicates_have_the_full_shape
    23 Tensor?[] with None and device indices
        -> aten/test_fallback_results.py::test_equals_the_cpu[index by None and tensor],
        aten/test_fallback_aliasing.py::test_operator_returns_what_is_no_tensor
    24 a view that falls back still aliases
        -> aten/test_behaviours.py::test_24_a_view_that_falls_back_still_aliases,
        aten/test_fallback_aliasing.py::test_operator_returns_a_view_of_its_operand
    24 a factory makes device tensors -> aten/test_behaviours.py::test_24_factories_without_a_kernel_make_device_tensors
    24 a random operator obeys the device's generator
        -> aten/test_behaviours.py::test_24_a_random_operator_draws_from_the_devices_generator,
        aten/test_behaviours.py::test_24_a_random_operator_of_ones_own_draws_from_the_devices_generator
    24 an operator that nobody has says so -> aten/test_fallback_report.py::test_operator_without_a_cpu_kernel

4. Streams, events, asynchrony
    25 to pageable memory is complete on return -> aten/test_copy.py::test_to_pageable_is_complete_on_return
    26 to("cpu", non_blocking=True) gives pinned memory and returns at once
        -> aten/test_copy.py::test_to_cpu_non_blocking_gives_pinned_memory
    26 what is read early is stale -> aten/test_copy.py::test_to_pinned_is_queued
    27 events survive a capture by Dynamo -> python/test_streams.py::test_27_a_compiled_synchronisation_waits
    28 without record_stream the block is taken at once
        -> runtime/test_allocator.py::test_without_record_stream_reuse_is_at_once
    28 with it, once the other stream has passed
        -> runtime/test_allocator.py::test_record_stream_defers_reuse,
        python/test_memory.py::test_record_stream_keeps_memory_until_the_stream_is_done
    29 record_stream of a shifted view
        -> aten/test_view.py::test_record_stream_on_a_shifted_view,
        runtime/test_allocator.py::test_record_stream_of_a_view_protects_the_block
    30 backward on the forward's stream -> autograd/test_streams.py::test_a_backward_runs_on_its_forwards_stream
    30 leaf gradients are safe for the caller
        -> autograd/test_streams.py::test_leaf_gradients_are_safe_on_the_callers_stream
    31 one warning of an accumulator of another stream
        -> autograd/test_streams.py::test_31_one_warning_of_a_leafs_node_made_on_another_stream
    32 torch.accelerator.synchronize blocks -> python/test_accelerator.py::test_synchronize
    32 set_stream -> runtime/test_events.py::test_new_work_lands_on_the_stream_that_was_set
    33 torch.Stream as a context, after exceptions, of another device
        -> runtime/test_events.py::test_context_restores_after_an_exception,
        python/test_streams.py::test_with_two_devices
    34 methods of a stream -> runtime/test_events.py::test_methods_of_a_stream, python/test_streams.py::test_priorities
    35 an event never recorded
        -> runtime/test_events.py::test_never_recorded, runtime/test_events.py::test_elapsed_time_errors
    36 elapsed_time without timing, before completion -> runtime/test_events.py::test_elapsed_time_errors
    36 elapsed_time between devices -> python/test_streams.py::test_with_two_devices
    37 no negative times, no hang, the device's work -> runtime/test_events.py::test_times_are_of_the_device
    37 not what the host does -> runtime/test_events.py::test_times_leave_out_what_the_host_does_between_the_records
    38 a failed kernel rises at the next wait, once, and the device is usable
        -> aten/test_errors.py::test_failed_kernel_surfaces_at_the_next_wait
    38 or at the launch
        -> aten/test_errors.py::test_launch_blocking_raises_at_the_call,
        driver/test_launch.py::test_blocking_mode_from_the_environment

5. Pinned memory, DataLoader
    39 pin_memory: pinned, equal -> runtime/test_dataloader.py::test_pin_memory
    39 reused after the copy that reads it -> runtime/test_allocator.py::test_pinned_memory_is_reused_after_its_copy
    39 empty_host_cache before the start -> runtime/test_allocator.py::test_caches_can_be_emptied_before_initialisation
    40 batches are pinned, in silence -> runtime/test_dataloader.py::test_batches_are_pinned_and_right
    40 by a thread with the caller's device
        -> runtime/test_dataloader.py::test_batches_are_pinned_with_the_callers_device
    41 pin_memory=True without a device -> runtime/test_dataloader.py::test_without_a_device

6. Modules, serialization, interoperation
    42 Module.to keeps parameters and ties -> modules/test_move.py::test_a_module_moves_there_and_back
    42 p.data both ways
        -> modules/test_data.py::test_data_takes_the_place, modules/test_data.py::test_a_parameter_in_use_moves
    43 a checkpoint of a device that is not there -> runtime/test_serialization.py::test_too_large_an_index_is_explained
    43 or of a package that is not -> python/test_import.py::test_without_the_package_accel_is_no_device
    44 the name and those of other types -> python/test_device.py::test_the_name_is_the_beginning_of_no_other
    44 no renaming -> python/test_openreg.py::test_the_module_is_registered_once
    45 NumPy names accel and .cpu() -> aten/test_errors.py::test_numpy_names_the_remedy
    46 either import first -> python/test_import.py::test_import_orders
    46 a broken library tells its cause -> python/test_import.py::test_broken_native_library
    46 TORCH_DEVICE_BACKEND_AUTOLOAD=0 -> python/test_import.py::test_torch_autoload_disabled
    47 torch.device("accel") without the package -> python/test_import.py::test_without_the_package_accel_is_no_device

7. Random numbers
    48 manual_seed reseeds every device, fork_rng, states midway
        -> training/test_random.py::test_devices_have_generators_of_their_own,
        aten/test_random_generators.py::test_fork_rng, training/test_random.py::test_a_fork_ends_where_it_began,
        aten/test_random_generators.py::test_state_round_trip_midway
    49 shards of a DTensor differ, replicas do not, states agree
        -> training/test_random.py::test_49_shards_of_a_dtensor_differ_and_replicas_are_the_same
    50 what is local to the CPU is moved to the mesh's device before it is drawn
        -> training/test_random.py::test_49_shards_of_a_dtensor_differ_and_replicas_are_the_same

8. Autocast, optimizers
    51 low precision, both dtypes -> autocast/test_policies.py::test_lower_precision
    51 float32 -> autocast/test_policies.py::test_fp32, autocast/test_policies.py::test_fp32_set_dtype
    51 promotion -> autocast/test_policies.py::test_promote
    51 the rest falls through -> autocast/test_composition.py::test_what_is_in_no_list_keeps_its_dtype
    52 another dtype warns once and disables
        -> autocast/test_composition.py::test_an_unsupported_dtype_warns_and_disables

9. Attention
    53 overrideable for every mask, heads in groups and dropout, equal to the math path both ways
        -> aten/test_attention.py::test_the_chosen_kernel_equals_the_math_path
    53 dropout -> aten/test_attention.py::test_dropout_is_the_formula
    53 rows that see nothing -> aten/test_attention.py::test_rows_that_see_nothing_are_zero_and_have_no_gradient
    53 sdpa_kernel(MATH) -> aten/test_attention.py::test_sdpa_kernel_selects

10. Memory
    54 torch.accelerator's functions work -> python/test_accelerator.py::test_memory
    54 agree with torch.accel's -> python/test_accelerator.py::test_memory_agrees_with_the_device_module
    54 and do nothing before the start
        -> runtime/test_allocator_inspect.py::test_statistics_do_nothing_before_initialisation
    55 freed: reserved stays; empty_cache
        -> runtime/test_allocator.py::test_sizes, python/test_memory.py::test_empty_cache
    56 out of memory: type, text, and less can be had -> aten/test_errors.py::test_memory_exhausted

From 57 on the list is about distributed training, compilers and the profiler. torch 2.13 lets DTensor's own constructor
put a CPU tensor on a mesh of any accelerator, where ranks then draw the same (50): that is torch's to refuse.
Open until the tools for missing synchronisations are there: the report of 26's early read and of 28's early reuse.
"""

import pytest

from tests.tables import exists, references, rows


@pytest.mark.parametrize("reference", references(__doc__))
def test_the_table_names_tests(reference):
    assert exists(reference)


def test_every_behaviour_has_a_test():
    table = rows(__doc__)
    assert {int(what.split()[0]) for what, _ in table} == set(range(1, 57))
    assert all(tests for _, tests in table)


def test_a_test_that_is_not_there_is_noticed():
    assert exists("aten/test_copy.py::test_geometry[large]")
    for wrong in ("test_geometry[larger]", "test_geometr", "numbers"):
        assert not exists(f"aten/test_copy.py::{wrong}")
    with pytest.raises(AssertionError, match="6 without a test"):
        rows("heading\n    5 with -> aten/test_copy.py::test_item\n    6 without a test")
