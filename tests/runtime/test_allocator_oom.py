"""The error of a full device, limits below the device's size, and what is left after a failure."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
import torch
from expecttest import assert_expected_inline

import torch_accel  # noqa: F401  (registers the device)

Script = Callable[..., "subprocess.CompletedProcess[str]"]


def test_the_largest_tenants_come_first_with_their_stacks(script: Script) -> None:
    child = script(
        """
        import torch
        torch.accel.memory._record_memory_history(stacks="python")
        def block(mib):
            return torch.empty(mib << 20, dtype=torch.uint8, device="accel")
        def weights():
            return block(8), block(8), block(8)
        def cache():
            return block(11)
        with torch.Stream(device="accel"):
            x = cache()
        y = weights()
        small = []
        for size in (1, 1, 2, 3, 4, 5):
            small.append(block(size))
        try:
            block(64)
        except torch.OutOfMemoryError as error:
            print(error)
        """,
        ACCEL_MEMORY="96MiB",
    )
    assert_expected_inline(
        child.stdout.strip(),
        """\
accel out of memory. Tried to allocate 64.00 MiB. Device accel:0 has a total capacity of 96.00 MiB of which 42.00 MiB is free. 52.00 MiB is allocated by torch_accel, 2.00 MiB is reserved but unallocated. Raise ACCEL_MEMORY, free tensors, or call torch.accel.empty_cache().
The largest blocks in use:
  24.00 MiB: 3 blocks of 8.00 MiB on stream 0
    <string>:6 in block
    <string>:8 in weights
    <string>:13 in <module>
  12.00 MiB: 1 block of 12.00 MiB on stream 1
    <string>:6 in block
    <string>:10 in cache
    <string>:12 in <module>
  5.00 MiB: 1 block of 5.00 MiB on stream 0
    <string>:6 in block
    <string>:16 in <module>
  4.00 MiB: 1 block of 4.00 MiB on stream 0
    <string>:6 in block
    <string>:16 in <module>
  3.00 MiB: 1 block of 3.00 MiB on stream 0
    <string>:6 in block
    <string>:16 in <module>""",
    )


def test_a_worker_names_the_tenants_without_stacks(script: Script) -> None:
    # nonzero's result is made by the worker, which may not take the GIL to turn a stack into text.
    child = script(
        """
        import torch
        torch.accel.memory._record_memory_history(stacks="python")
        x = torch.ones(4 << 20, dtype=torch.bool, device="accel")
        y = torch.empty(40 << 20, dtype=torch.uint8, device="accel")
        try:
            torch.nonzero(x)
        except torch.OutOfMemoryError as error:
            print(*str(error).splitlines()[1:], sep="\\n")
        """,
        ACCEL_MEMORY="64MiB",
        ACCEL_FALLBACK="allow",
    )
    assert_expected_inline(
        child.stdout.strip(),
        """\
The largest blocks in use:
  40.00 MiB: 1 block of 40.00 MiB on stream 0
  4.00 MiB: 1 block of 4.00 MiB on stream 0""",
    )


def test_the_fraction_limits_what_is_reserved(script: Script) -> None:
    child = script(
        """
        import torch
        assert torch.accel.get_per_process_memory_fraction() == 1.0
        torch.accel.set_per_process_memory_fraction(0.5)
        assert torch.accel.get_per_process_memory_fraction("accel:0") == 0.5
        def block(mib):
            return torch.empty(mib << 20, dtype=torch.uint8, device="accel")
        x = block(20)
        try:
            block(20)
        except torch.OutOfMemoryError as error:
            print(str(error).splitlines()[0])
        del x
        y = block(32)  # what the cache held was given back first
        assert torch.accel.memory_reserved() == 32 << 20
        assert torch.accel.mem_get_info() == (32 << 20, 64 << 20)
        torch.accel.set_per_process_memory_fraction(1.0)
        z = block(32)
        """,
        ACCEL_MEMORY="64MiB",
    )
    assert_expected_inline(
        child.stdout.strip(),
        """accel out of memory. Tried to allocate 20.00 MiB. Device accel:0 has a total capacity of 64.00 MiB of which 44.00 MiB is free. 32.00 MiB is allowed to this process. 20.00 MiB is allocated by torch_accel, 0 bytes is reserved but unallocated. Raise ACCEL_MEMORY, free tensors, or call torch.accel.empty_cache().""",
    )


def test_fractions_out_of_range() -> None:
    with pytest.raises(TypeError, match="Invalid type for fraction argument, must be `float`"):
        torch.accel.set_per_process_memory_fraction(1)
    for fraction in (-0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match=r"Invalid fraction value: .*\. Allowed range: 0~1"):
            torch.accel.set_per_process_memory_fraction(fraction)


# In a fork per failure. The forks happen before the chip is initialised, so each is a process of its own.
TRAINING = """
import gc, os, sys
import torch, torch_accel

# What torch imports late, it imports once, here.
warm = torch.nn.Parameter(torch.zeros(1))
warm.grad = torch.zeros(1)
torch.optim.SGD([warm], lr=0.1, momentum=0.9).step()

def step():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).to("accel")
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.linspace(-1, 1, 40).reshape(10, 4).to("accel")
    for _ in range(2):
        optimiser.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimiser.step()
    return loss.item()

def nothing_is_left():
    gc.collect()
    torch.accel.synchronize()
    torch.accel.empty_cache()
    stats = torch.accel.memory_stats()
    left = {key: stats[f"{key}.all.current"] for key in ("allocated_bytes", "active_bytes", "reserved_bytes")}
    assert set(left.values()) == {0}, left

def child(nth):
    os.environ["ACCEL_ALLOC_FAIL_NTH"] = str(nth)
    try:
        step()
    except torch.OutOfMemoryError as error:
        assert f"ACCEL_ALLOC_FAIL_NTH={nth}" in str(error), error
        del error
    if torch.accel.memory_stats()["num_ooms"] == 0:
        return 10
    nothing_is_left()
    assert step() == step()
    assert torch.accel.memory_stats()["num_ooms"] == 1
    nothing_is_left()
    return 11

for nth in NUMBERS:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = child(nth)
        except BaseException:
            import traceback
            traceback.print_exc()
        os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (10, 11), (nth, status)
    if status == 10:
        break
print(nth, status)
"""


def test_some_failing_allocations_of_a_training_step_can_be_survived(script: Script) -> None:
    child = script(TRAINING.replace("NUMBERS", "(1, 6, 14, 27)"), ACCEL_FALLBACK="allow", OMP_NUM_THREADS="1")
    assert child.stdout.split() == ["27", "11"]  # each of them failed


@pytest.mark.full
def test_every_failing_allocation_of_a_training_step_can_be_survived(script: Script) -> None:
    child = script(
        TRAINING.replace("NUMBERS", "range(1, 400)"), timeout=300, ACCEL_FALLBACK="allow", OMP_NUM_THREADS="1"
    )
    last, status = map(int, child.stdout.split())
    assert 27 < last < 399 and status == 10  # every allocation failed once, then a run had none left to fail
