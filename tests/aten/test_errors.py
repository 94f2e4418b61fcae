"""Bad input: a Python exception that names accel, the value and the remedy, and the device stays usable."""

import contextlib

import numpy as np
import pytest
import torch
from expecttest import assert_expected_inline

from torch_accel.testing import hold_stream, launch_blocking


@pytest.fixture(autouse=True)
def still_usable():
    other = torch.arange(4.0).to("accel")
    yield
    assert torch.equal((other * 2).cpu(), torch.arange(4.0) * 2)
    torch.accel.synchronize()  # nothing is left to be raised


def message(call, kind=RuntimeError):
    with pytest.raises(kind) as raised:
        call()
    return str(raised.value)


OUT_OF_RANGE = {
    "empty": lambda: torch.empty(2, device="accel:7"),
    "to": lambda: torch.ones(2).to("accel:7"),
    "set_device": lambda: torch.accel.set_device(7),
    "torch.accelerator": lambda: torch.accelerator.set_device_index(7),
    "synchronize": lambda: torch.accel.synchronize(7),
    "Stream": lambda: torch.Stream(device="accel:7"),
    "memory": lambda: torch.accel.memory_allocated(7),
    "properties": lambda: torch.accel.get_device_properties(7),
    "device context": lambda: torch.accel.device(7).__enter__(),
    "generator": lambda: torch.Generator("accel:7"),
}


@pytest.mark.parametrize("call", OUT_OF_RANGE.values(), ids=OUT_OF_RANGE.keys())
def test_index_out_of_range(call):
    assert_expected_inline(
        message(call),
        """accel: invalid device index 7; the only device is accel:0 (ACCEL_DEVICES sets how many)""",
    )
    assert torch.accel.current_device() == 0


def test_device_strings():
    assert_expected_inline(message(lambda: torch.device("accel:-1")), """Invalid device string: 'accel:-1'""")
    assert "device string: acel" in message(lambda: torch.device("acel"))


TO_NUMPY = {
    "asarray": np.asarray,
    "numpy()": lambda x: x.numpy(),
    "ufunc": lambda x: np.add(x, 1),
    "__array__": lambda x: x.__array__(),
}


@pytest.mark.parametrize("call", TO_NUMPY.values(), ids=TO_NUMPY.keys())
def test_numpy_names_the_remedy(call):
    assert_expected_inline(
        message(lambda: call(torch.ones(3, device="accel")), TypeError),
        """can't convert accel:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.""",
    )


def test_operations_of_the_host():
    x = torch.ones(3, device="accel")
    for call in (lambda: x.apply_(abs), lambda: x.map_(x, max), lambda: memoryview(x)):
        assert "CPU" in message(call, (TypeError, RuntimeError)) or "bytes-like" in message(
            call, (TypeError, RuntimeError)
        )


def test_memory_exhausted(script):
    done = script(
        """
        import torch
        kept = torch.arange(4.0).to("accel")
        for call in (
            lambda: torch.empty(64 << 20, dtype=torch.uint8, device="accel"),
            lambda: torch.zeros(8 << 20, device="accel").double(),  # within a fallback
        ):
            try:
                call()
            except torch.OutOfMemoryError as error:
                print(isinstance(error, RuntimeError), error, end=chr(0))
        assert torch.equal((kept + 1).cpu(), torch.arange(4.0) + 1)
        assert torch.ones(4 << 20, device="accel").sum().item() == 4 << 20
        """,
        ACCEL_MEMORY="48MiB",
    )
    first, second, _ = done.stdout.split("\0")
    assert_expected_inline(
        first,
        """\
True accel out of memory. Tried to allocate 64.00 MiB. Device accel:0 has a total capacity of 48.00 MiB of which 46.00 MiB is free. 512 bytes is allocated by torch_accel, 2.00 MiB is reserved but unallocated. Raise ACCEL_MEMORY, free tensors, or call torch.accel.empty_cache().
The largest blocks in use:
  512 bytes: 1 block of 512 bytes on stream 0
torch.accel.memory._record_memory_history() shows where they were allocated.""",
    )
    assert second.startswith("True accel out of memory. Tried to allocate 64.00 MiB.")


# ---- A kernel that fails after its launch


def fail(x=None):
    """Queues a kernel that raises: probabilities are read on the worker."""
    x = torch.zeros(3, device="accel") if x is None else x
    return x.bernoulli_(torch.full((3,), 2.0, device="accel"))


WAITS = {
    "synchronize": lambda x: torch.accel.synchronize(),
    "torch.accelerator": lambda x: torch.accelerator.synchronize(),
    "stream": lambda x: torch.accel.current_stream().synchronize(),
    "cpu": lambda x: x.cpu(),
    "item": lambda x: x[0].item(),
    "tolist": lambda x: x.tolist(),
    "fallback": lambda x: x.nonzero(),
    "print": lambda x: repr(x),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS.keys())
def test_failed_kernel_surfaces_at_the_next_wait(wait):
    with launch_blocking(False):
        with hold_stream():
            x = fail()  # returns
        text = message(lambda: wait(x), torch.AcceleratorError)
        assert_expected_inline(
            text,
            """\
accel kernel failed: bernoulli_: bernoulli_ expects p to be in [0, 1], but got p=2 (operands: Float[3], Float[3])
Kernels fail after their launch, so this call may not be the one to blame. ACCEL_LAUNCH_BLOCKING=1 raises the error at the launch.""",
        )
        wait(x)  # raised once
        assert torch.ones(3, device="accel").sum().item() == 3


def test_failed_kernel_surfaces_at_an_event():
    with launch_blocking(False):
        fail()
        event = torch.accel.Event()
        event.record()
        assert "expects p to be in" in message(event.synchronize, torch.AcceleratorError)
        with contextlib.suppress(torch.AcceleratorError):  # the stream's own report of it
            torch.accel.synchronize()


def test_launch_blocking_raises_at_the_call():
    with launch_blocking():
        assert "expects p to be in" in message(fail, torch.AcceleratorError)
        torch.accel.synchronize()


def test_failed_kernel_of_another_stream():
    side = torch.accel.Stream()
    with launch_blocking(False):
        with torch.accel.stream(side):
            fail()
        x = torch.ones(3, device="accel")
        assert x.sum().item() == 3  # not the main stream's business
        assert "expects p to be in" in message(side.synchronize, torch.AcceleratorError)


FILLS = {
    "int8": lambda d: torch.zeros(3, dtype=torch.int8, device=d).fill_(1000),
    "float16": lambda d: torch.zeros(3, dtype=torch.float16, device=d).fill_(1e10),
    "float8": lambda d: torch.zeros(3, dtype=torch.float8_e4m3fn, device=d).fill_(1e10),
    "complex to real": lambda d: torch.zeros(3, device=d).fill_(1j),
    "full": lambda d: torch.full((3,), 1000, dtype=torch.int8, device=d),
    "masked_fill": lambda d: torch.zeros(3, dtype=torch.int8, device=d).masked_fill(
        torch.ones(3, dtype=torch.bool, device=d), 1000
    ),
    "one element": lambda d: torch.zeros(1, dtype=torch.int8, device=d).fill_(1000),
}


@pytest.mark.parametrize("call", FILLS.values(), ids=FILLS.keys())
def test_unrepresentable_values_raise_at_the_call(call):
    assert message(lambda: call("accel")) == message(lambda: call("cpu"))


def test_fill_by_a_tensor():
    x = torch.zeros(3, dtype=torch.int8, device="accel")
    with pytest.raises(RuntimeError, match="without overflow"):
        x.fill_(torch.tensor(1000))  # a host value, as on CUDA
    x.fill_(torch.tensor(1000, device="accel"))  # one device's: a cast, as on the CPU
    assert torch.equal(x.cpu(), torch.zeros(3, dtype=torch.int8).fill_(torch.tensor(1000)))
    y = torch.arange(4.0).to("accel")
    y.fill_(y[2])
    assert y.tolist() == [2, 2, 2, 2]


ARGUMENTS = {
    "record_stream": lambda x: x.record_stream(3),
    "sleep": lambda x: torch.accel._sleep("long"),
    "set_stream": lambda x: torch.accel.set_stream("accel"),
    "seed": lambda x: torch.accel.manual_seed("seven"),
    "memory.numpy of CPU": lambda x: torch.accel.memory.numpy(x.cpu()),
}


@pytest.mark.parametrize("call", ARGUMENTS.values(), ids=ARGUMENTS.keys())
def test_wrong_types(call):
    with pytest.raises((TypeError, ValueError, RuntimeError, AttributeError)):
        call(torch.ones(3, device="accel"))


VARIABLES = {
    "ACCEL_DEVICES": "many",
    "ACCEL_MEMORY": "lots",
    "ACCEL_THREADS": "0",
    "ACCEL_FALLBACK": "maybe",
    "ACCEL_RNG": "dice",
}


def test_unknown_values_of_variables(script):
    # One process each costs seconds; children of one do not: they start before the device does.
    done = script(
        f"""
        import os, sys, torch
        for name, value in {VARIABLES!r}.items():
            sys.stdout.flush()
            child = os.fork()
            if child == 0:
                os.environ[name] = value
                try:
                    torch.rand(3, device="accel").nonzero()
                    print(name, "was taken")
                except RuntimeError as error:
                    print(error)
                sys.stdout.flush()
                os._exit(0)
            os.waitpid(child, 0)
        """
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(VARIABLES), done.stdout
    for line, (name, value) in zip(lines, VARIABLES.items()):
        assert line.startswith("accel") and name in line and value in line, line


@pytest.mark.parametrize(
    "call",
    [
        lambda d: torch.addmm(torch.ones(3, 3, device=d), torch.ones(2, 4, device=d), torch.ones(4, 5, device=d)),
        lambda d: torch.addmm(torch.ones(3, 3, device=d), torch.ones(2, 0, device=d), torch.ones(0, 5, device=d)),
        lambda d: torch.mean(torch.ones(3, device=d), 0, out=torch.empty((), dtype=torch.int64, device=d)),
        lambda d: torch.norm(torch.ones(3, 0, device=d), -1, dim=1),
    ],
    ids=["addmm", "addmm of nothing", "mean to an integer", "norm of nothing"],
)
def test_raises_at_the_call_what_the_kernel_would_raise_later(call):
    with pytest.raises(RuntimeError) as there:
        call("cpu")
    with pytest.raises(RuntimeError) as here:
        call("accel")
    assert type(here.value) is type(there.value)
    assert str(here.value) == str(there.value)


@pytest.mark.parametrize("name", ["index_select", "logical_and", "kthvalue"])
def test_an_out_argument_on_the_cpu_is_refused_even_if_it_has_no_dimensions(name):
    x = torch.ones(1, device="accel")[0]
    out = torch.empty(())
    calls = {
        "index_select": lambda: torch.index_select(x, 0, torch.zeros((), dtype=torch.int64, device="accel"), out=out),
        "logical_and": lambda: torch.logical_and(x, x, out=out),
        "kthvalue": lambda: torch.kthvalue(x, 1, out=(out, torch.empty((), dtype=torch.int64))),
    }
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        calls[name]()


def test_mish_gradient_is_the_cpus():
    x = torch.linspace(-3, 3, 100, dtype=torch.bfloat16)
    results = []
    for device in ("accel", "cpu"):
        leaf = x.to(device).requires_grad_()
        torch.nn.functional.mish(leaf).sum().backward()
        results.append(leaf.grad.cpu())
    assert torch.equal(*results)


def test_triangular_solve_restrides_its_outputs_as_on_the_cpu():
    a, b = torch.eye(3) + torch.ones(3, 3).triu(), torch.ones(3, 2)
    results = []
    for device in ("accel", "cpu"):
        outs = torch.empty(3, 2, device=device), torch.empty(3, 3, device=device)
        torch.triangular_solve(b.to(device), a.to(device), out=outs)
        results.append([(o.cpu(), o.stride()) for o in outs])
    for (ours, our_stride), (cpus, cpu_stride) in zip(*results, strict=True):
        assert torch.equal(ours, cpus) and our_stride == cpu_stride


#: scalars that their operand's dtype cannot hold, or its operator does not take: CUDA's launchers see them, so the
#: call raises
SCALARS = {
    "pow": lambda x: torch.pow(x.half(), 1e10),
    "pow_": lambda x: x.int().pow_(2**40),
    "clamp": lambda x: x.half().clamp(max=1e10),
    "clamp_min": lambda x: x.to(torch.int8).clamp_min(2**40),
    "add, alpha": lambda x: torch.add(x.half(), x.half(), alpha=1e10),
    "sub, alpha": lambda x: torch.sub(x.int(), x.int(), alpha=2**40),
    "addmm, alpha": lambda x: torch.addmm(x.int(), x.int(), x.int(), alpha=2**40),
    "addmm, beta": lambda x: torch.addmm(x.to(torch.int8), x.to(torch.int8), x.to(torch.int8), beta=1000),
    "addmm of complex": lambda x: torch.addmm(x, x, x, alpha=1j),
    "addcmul": lambda x: torch.addcmul(x.half(), x.half(), x.half(), value=1e39),
    "comparison with a complex number": lambda x: x.int() < 1j,
    "renorm of integers": lambda x: torch.renorm(x.int(), 2, 0, 1.0),
    "hardtanh of bool": lambda x: torch.nn.functional.hardtanh(x > 0, -1, 1),
    "hardtanh of unsigned": lambda x: torch.nn.functional.hardtanh(x.to(torch.uint8), -1, 1),
    "masked_fill": lambda x: x.to(torch.int8).masked_fill(x > 0, 1000),
    "scatter": lambda x: x.to(torch.int8).scatter(0, torch.zeros_like(x, dtype=torch.int64), 1000),
}


@pytest.mark.parametrize("call", SCALARS.values(), ids=SCALARS.keys())
@pytest.mark.parametrize("size", [2, 70])  # the larger one is beyond a trial on dummies of any values
def test_scalars_beyond_a_dtype_raise_at_the_call(call, size):
    host = torch.ones(size, size)
    for good in (
        lambda x: torch.pow(x.half(), 2.0),
        lambda x: torch.add(x.half(), x.half(), alpha=2.0),
        lambda x: torch.addcmul(x.half(), x.half(), x.half(), value=1e10),
        lambda x: x.int() < 2,
    ):
        good(host.accel())  # its kernel is known with these dtypes from now on
    expected = message(lambda: call(host))
    with launch_blocking(False):
        for _ in range(2):
            with pytest.raises(RuntimeError) as raised:
                call(host.accel())
            assert type(raised.value) is not torch.AcceleratorError and str(raised.value) == expected
