"""copy_ in all directions: geometry, dtypes, math bits, errors, and what non_blocking means."""

import itertools

import numpy as np
import pytest
import torch

from torch_accel import sanitizer
from torch_accel.testing import hold_stream, wait_report

DIRECTIONS = list(itertools.product(("cpu", "accel"), repeat=2))[1:]  # (from, to); cpu -> cpu is the oracle
direction = pytest.mark.parametrize("source, target", DIRECTIONS, ids=[f"{a}-{b}" for a, b in DIRECTIONS])


def numbers(*shape, dtype=torch.float32):
    count = int(np.prod(shape))
    values = torch.arange(count, dtype=torch.float64).remainder(11) - 3
    if dtype.is_complex:
        return torch.complex(values, values.flip(0)).to(dtype).reshape(shape)
    return values.to(dtype).reshape(shape)


# name: (make destination, destination's view, make source, source's view)
GEOMETRY = {
    "contiguous": ((4, 5), lambda x: x, (4, 5), lambda x: x),
    "into gaps from gaps": ((20,), lambda x: x[::2], (20,), lambda x: x[1::2]),
    "into an offset": ((10,), lambda x: x[3:8], (5,), lambda x: x),
    "from an offset": ((7,), lambda x: x, (10,), lambda x: x[3:]),
    "from an offset of rank 2": ((1, 7), lambda x: x, (1, 10), lambda x: x[:, 3:]),
    "rows of an odd width": ((3, 101), lambda x: x, (4, 101), lambda x: x[1:]),
    "transposed source": ((5, 4), lambda x: x, (4, 5), lambda x: x.t()),
    "transposed destination": ((5, 4), lambda x: x.t(), (4, 5), lambda x: x),
    "both transposed": ((5, 4), lambda x: x.t(), (5, 4), lambda x: x.t()),
    "strided both ways": ((6, 8), lambda x: x[1::2, ::2], (8, 6), lambda x: x.t()[::2, 1::2]),
    "expanded source": ((4, 5), lambda x: x, (5,), lambda x: x.expand(4, 5)),
    "broadcast source": ((4, 5), lambda x: x, (5,), lambda x: x),
    "broadcast of size one": ((4, 5), lambda x: x, (4, 1), lambda x: x),
    "0-dim source": ((4, 5), lambda x: x, (), lambda x: x),
    "0-dim view": ((5,), lambda x: x[2], (), lambda x: x),
    "0-dim both": ((), lambda x: x, (), lambda x: x),
    "one element": ((1, 1, 1), lambda x: x, (), lambda x: x),
    "channels last": ((2, 3, 4, 5), lambda x: x.to(memory_format=torch.channels_last), (2, 3, 4, 5), lambda x: x),
    "flipped ranks": ((2, 3, 4), lambda x: x.permute(2, 0, 1), (4, 2, 3), lambda x: x),
    "overlapping source": ((4, 3), lambda x: x, (10,), lambda x: x.as_strided((4, 3), (2, 1), 1)),
    "nothing": ((0, 3), lambda x: x, (0, 3), lambda x: x),
    "nothing broadcast": ((0, 3), lambda x: x, (3,), lambda x: x),
    "large": ((300, 300), lambda x: x.t(), (300, 300), lambda x: x),
    "large with gaps": ((400, 400), lambda x: x[::2, 1::2], (200, 400), lambda x: x[:, ::2]),
}


@direction
@pytest.mark.parametrize("non_blocking", [False, True])
@pytest.mark.parametrize("to_shape, to_view, from_shape, from_view", GEOMETRY.values(), ids=GEOMETRY.keys())
def test_geometry(to_shape, to_view, from_shape, from_view, source, target, non_blocking):
    oracle = torch.full(to_shape, -9.0)
    expected = to_view(oracle).copy_(from_view(numbers(*from_shape)))
    base = torch.full(to_shape, -9.0, device=target)
    values = numbers(*from_shape).to(source)
    written = to_view(base)
    assert written.copy_(from_view(values), non_blocking=non_blocking) is written
    torch.accel.synchronize()
    assert torch.equal(written.cpu(), expected)
    assert torch.equal(base.cpu(), oracle)  # what lies between the elements is untouched


@pytest.mark.parametrize("pinned_end", ["source", "target"])
@pytest.mark.parametrize("name", ["into gaps from gaps", "broadcast source", "strided both ways", "large"])
def test_geometry_of_pinned(name, pinned_end):
    to_shape, to_view, from_shape, from_view = GEOMETRY[name]
    oracle = torch.full(to_shape, -9.0)
    to_view(oracle).copy_(from_view(numbers(*from_shape)))
    if pinned_end == "source":
        base, values = torch.full(to_shape, -9.0, device="accel"), numbers(*from_shape).pin_memory()
    else:
        base, values = torch.full(to_shape, -9.0).pin_memory(), numbers(*from_shape).to("accel")
    to_view(base).copy_(from_view(values), non_blocking=True)
    torch.accel.synchronize()
    assert torch.equal(base.cpu(), oracle)


DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.bool,
    torch.complex64,
    torch.complex128,
    torch.complex32,
]


@direction
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.filterwarnings("ignore:Casting complex values to real", "ignore:ComplexHalf support is experimental")
def test_dtypes(dtype, source, target):
    for other in DTYPES:
        values = numbers(3, 4, dtype=torch.complex64 if dtype.is_complex else torch.float32).abs().to(dtype)
        expected = torch.zeros(3, 4).to(other).copy_(values)
        actual = torch.zeros(3, 4).to(other).to(target).copy_(values.to(source))
        assert actual.dtype == other
        assert torch.equal(actual.cpu().view(torch.uint8), expected.view(torch.uint8)), other


@direction
def test_dtypes_against_numpy(source, target):
    values = np.array([0, 1.75, 2.5, 255, 300], np.float32)
    for dtype in (torch.float64, torch.int32, torch.int64, torch.bool, torch.float16, torch.complex64):
        actual = torch.zeros(5, dtype=dtype, device=target).copy_(torch.from_numpy(values).to(source)).cpu().numpy()
        np.testing.assert_array_equal(actual, values.astype(actual.dtype))


@direction
def test_complex_to_real_warns(source, target):
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        x = torch.tensor([1 + 2j, 3 - 1j], device=source)
        with pytest.warns(UserWarning, match="Casting complex values to real discards the imaginary part"):
            y = torch.zeros(2, device=target).copy_(x)
            torch.accel.synchronize()
    finally:
        torch.set_warn_always(before)
    assert y.tolist() == [1, 3]


MATH_BITS = {
    "conj": lambda z: z.conj(),
    "conj of strided": lambda z: z[::2].conj(),
    "neg": lambda z: z.conj().imag,
    "_neg_view": lambda z: torch._neg_view(z),
    "conj and neg": lambda z: torch._neg_view(z.conj()),
    "real of conj": lambda z: z.conj().real,
    "transposed conj": lambda z: z.reshape(3, 4).conj().t(),
    "adjoint": lambda z: z.reshape(3, 4).adjoint(),
}


@direction
@pytest.mark.parametrize("view", MATH_BITS.values(), ids=MATH_BITS.keys())
def test_math_bits_of_the_source(view, source, target):
    z = numbers(12, dtype=torch.complex64)
    plain = view(z.clone()).resolve_conj().resolve_neg()  # an independent tensor without bits
    x = view(z.to(source))
    assert torch.equal(torch.zeros_like(plain, device=target).copy_(x).cpu(), plain)
    assert torch.equal(x.to(target).cpu(), plain)
    if source == "accel":
        for made in (x.clone(), x.contiguous(), x.resolve_conj().resolve_neg(), x + 0):
            assert torch.equal(made.cpu(), plain)
        assert not x.resolve_conj().is_conj() and not x.resolve_neg().is_neg()


@direction
@pytest.mark.parametrize("view", MATH_BITS.values(), ids=MATH_BITS.keys())
def test_math_bits_of_the_target(view, source, target):
    oracle, z = numbers(12, dtype=torch.complex64), numbers(12, dtype=torch.complex64).to(target)
    value = view(numbers(12, dtype=torch.complex64)).resolve_conj().resolve_neg() * 2
    view(oracle).copy_(value)
    view(z).copy_(value.to(source))
    assert torch.equal(z.cpu(), oracle)
    view(oracle).fill_(3)
    view(z).fill_(3)
    assert torch.equal(z.cpu(), oracle)


def test_math_bits_against_numpy():
    z = torch.tensor([1 + 2j, 3 - 4j], device="accel")
    np.testing.assert_array_equal(z.conj().cpu().numpy(), np.array([1 - 2j, 3 + 4j], np.complex64))
    np.testing.assert_array_equal(z.conj().imag.cpu().numpy(), np.array([-2, 4], np.float32))
    assert z.conj()[0].item() == 1 - 2j and z.conj().imag[1].item() == 4
    assert z.conj().tolist() == [1 - 2j, 3 + 4j]


ERRORS = {
    "shape": ((3,), lambda x: x, (4,), lambda x: x),
    "rank": ((3,), lambda x: x, (2, 3), lambda x: x),
    "shape of nothing": ((0,), lambda x: x, (4,), lambda x: x),
    "0-dim target": ((), lambda x: x, (2,), lambda x: x),
    "expanded target": ((1, 3), lambda x: x.expand(4, 3), (4, 3), lambda x: x),
}


@direction
@pytest.mark.parametrize("to_shape, to_view, from_shape, from_view", ERRORS.values(), ids=ERRORS.keys())
def test_errors_are_the_cpus(to_shape, to_view, from_shape, from_view, source, target):
    with pytest.raises(RuntimeError) as expected:
        to_view(torch.zeros(to_shape)).copy_(from_view(torch.ones(from_shape)))
    base = torch.zeros(to_shape, device=target)
    with pytest.raises(RuntimeError) as raised:
        to_view(base).copy_(from_view(torch.ones(from_shape, device=source)))
    assert str(raised.value) == str(expected.value)
    assert torch.equal(base.cpu(), torch.zeros(to_shape))


def test_partial_overlap_is_the_cpus_error():
    messages = []
    for device in ("cpu", "accel"):
        x = torch.arange(10.0, device=device)
        with pytest.raises(RuntimeError) as raised:
            x[1:].copy_(x[:-1])
        messages.append(str(raised.value))
        x.copy_(x)  # onto itself: nothing to do
        x[:].copy_(x)
        assert x.tolist() == list(range(10))
    assert messages[0] == messages[1]


def test_copies_between_layouts_are_refused_as_on_the_cpu():
    messages = []
    for device in ("cpu", "accel"):
        with pytest.raises(RuntimeError) as raised:
            torch.zeros(3, 3, device=device).copy_(torch.eye(3).to_sparse())
        messages.append(str(raised.value).replace("PrivateUse1", "CPU").replace("accel", "CPU"))
    assert messages[0].split("!")[0] == messages[1].split("!")[0]


VALUES = {
    torch.float32: 1.5,
    torch.float64: -2.25,
    torch.float16: 0.5,
    torch.bfloat16: -3.0,
    torch.float8_e4m3fn: 2.0,
    torch.float8_e5m2: -4.0,
    torch.int8: -7,
    torch.uint8: 250,
    torch.int16: -300,
    torch.uint16: 60000,
    torch.int32: 1 << 30,
    torch.uint32: 1 << 31,
    torch.int64: -(1 << 60),
    torch.uint64: 1 << 63,
    torch.bool: True,
    torch.complex64: 1 + 2j,
    torch.complex128: 3 - 4j,
    torch.complex32: 1 - 1j,
}


@pytest.mark.parametrize("dtype, value", VALUES.items(), ids=map(str, VALUES))
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_item(dtype, value):
    x = torch.tensor([0, value], dtype=dtype).to("accel")
    item = x[1].item()
    assert item == value and type(item) is type(value)
    assert x[1:].item() == value  # one element of any rank


def test_item_conversions():
    x = torch.tensor(3, device="accel")
    assert (int(x), float(x), bool(x), complex(x), [10, 20, 30, 40][x]) == (3, 3.0, True, 3 + 0j, 40)
    assert torch.ones(2, device="accel").tolist() == [1, 1] and f"{x:d}" == "3"
    with pytest.raises(RuntimeError) as raised:
        torch.ones(2, device="accel").item()
    assert str(raised.value) == "a Tensor with 2 elements cannot be converted to Scalar"
    with pytest.raises(RuntimeError, match="ambiguous"):
        bool(torch.ones(2, device="accel"))


def test_item_waits_for_queued_work():
    x = torch.zeros(3, device="accel")
    torch.accel._sleep(20_000_000)
    x.fill_(5)
    assert x[1].item() == 5


@direction
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
def test_a_copy_is_made_where_it_is_asked_for(source, target, dtype):
    x = numbers(3, 4).to(source).t()
    same = source == target and dtype == torch.float32
    for moved in (
        x.to(target, dtype),
        x.to(target, dtype, non_blocking=True),
        x.to(torch.empty(0, device=target, dtype=dtype)),
    ):
        torch.accel.synchronize()
        assert (
            (moved is x) == same
            and moved.device.type == target
            and torch.equal(moved.cpu(), numbers(3, 4).t().to(dtype))
        )
    copied = x.to(target, dtype, copy=True)
    assert copied.data_ptr() != x.data_ptr() and copied.stride() == x.stride() and copied.dtype == dtype
    copied.zero_()
    assert torch.equal(x.cpu(), numbers(3, 4).t())


LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(1, 2),
    "with gaps": lambda x: x[:, ::2, 1:],
    "expanded": lambda x: x[:, :1].expand(2, 3, 4, 5),
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "nothing": lambda x: x[:, :0],
}


@pytest.mark.parametrize(
    "memory_format", [torch.preserve_format, torch.contiguous_format, torch.channels_last], ids=str
)
@pytest.mark.parametrize("view", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_clones_have_the_cpus_strides_and_memory_of_their_own(view, memory_format):
    x, expected = view(numbers(2, 3, 4, 5).to("accel")), view(numbers(2, 3, 4, 5)).clone(memory_format=memory_format)
    clone = x.clone(memory_format=memory_format)
    assert clone.stride() == expected.stride() and torch.equal(clone.cpu(), expected)
    clone.zero_()
    assert torch.equal(x.cpu(), view(numbers(2, 3, 4, 5)))


# ---- non_blocking


@sanitizer.enabled("off")  # reads on purpose what a copy will write
def test_to_pinned_is_queued():
    device, pinned = torch.ones(1000, device="accel"), torch.zeros(1000).pin_memory()
    event = torch.accel.Event()
    torch.accel.synchronize()
    with hold_stream():
        assert pinned.copy_(device, non_blocking=True) is pinned
        event.record()
        assert not event.query() and pinned[0] == 0
    event.synchronize()
    assert torch.equal(pinned, torch.ones(1000))


def test_to_cpu_non_blocking_gives_pinned_memory():
    device = torch.arange(1000.0, device="accel")
    event = torch.accel.Event()
    torch.accel.synchronize()
    with hold_stream():
        host = device.to("cpu", non_blocking=True)
        event.record()
        assert host.is_pinned() and not event.query()
    event.synchronize()
    assert torch.equal(host, torch.arange(1000.0))


def test_from_pinned_is_queued():
    pinned, device = torch.ones(100_000).pin_memory(), torch.zeros(100_000, device="accel")
    torch.accel.synchronize()
    with hold_stream():
        device.copy_(pinned, non_blocking=True)
        assert not torch.accel.current_stream().query()
    assert torch.equal(device.cpu(), torch.ones(100_000))


def test_pinned_source_may_die_at_once():
    # The host allocator keeps the block until the queued copy has read it.
    device = torch.zeros(1000, device="accel")
    torch.accel.synchronize()
    with hold_stream():
        for value in range(4):
            source = torch.full((1000,), float(value)).pin_memory()
            device.copy_(source, non_blocking=True)
            address = source.data_ptr()
            del source
        fresh = torch.full((1000,), -1.0).pin_memory()
        assert fresh.data_ptr() != address
    assert torch.equal(device.cpu(), torch.full((1000,), 3.0))


@pytest.mark.parametrize("numel", [10, 100_000])
@pytest.mark.parametrize("non_blocking", [False, True])
def test_to_pageable_is_complete_on_return(numel, non_blocking):
    device, host = torch.zeros(numel, device="accel"), torch.zeros(numel)
    torch.accel._sleep(10_000_000)
    device.fill_(6)
    host.copy_(device, non_blocking=non_blocking)
    assert torch.accel.current_stream().query()
    assert torch.equal(host, torch.full((numel,), 6.0))


@pytest.mark.parametrize("numel, non_blocking", [(10, False), (10, True), (16_384, False), (100_000, True)])
def test_from_pageable_does_not_wait(numel, non_blocking):
    device, host = torch.zeros(numel, device="accel"), torch.ones(numel)
    torch.accel.synchronize()
    waits = sum(wait_report().values())
    with hold_stream():
        device.copy_(host, non_blocking=non_blocking)
        host.fill_(9)
        assert sum(wait_report().values()) == waits
    assert torch.equal(device.cpu(), torch.ones(numel))


def test_blocking_copy_from_pinned_is_complete_on_return():
    device, pinned = torch.zeros(1000, device="accel"), torch.ones(1000).pin_memory()
    torch.accel._sleep(10_000_000)
    device.copy_(pinned)
    assert torch.accel.current_stream().query()
    pinned.fill_(2)
    assert torch.equal(device.cpu(), torch.ones(1000))


def test_copies_stay_in_stream_order():
    x, y = torch.zeros(1000, device="accel"), torch.zeros(1000, device="accel")
    torch.accel.synchronize()
    with hold_stream():
        x.fill_(1)
        y.copy_(x)
        x.fill_(2)
        y[500:].copy_(x[:500])
        assert not torch.accel.current_stream().query()
    assert torch.equal(y.cpu(), torch.tensor([1.0, 2.0]).repeat_interleave(500))


def test_two_devices(script):
    script(
        """
        import itertools, torch
        from torch_accel.testing import hold_stream

        def check(condition):
            if not condition:
                raise AssertionError

        a, b = torch.device("accel:0"), torch.device("accel:1")
        x = torch.arange(12.0, device=a).reshape(3, 4)
        check(torch.equal(x.to(b).cpu(), torch.arange(12.0).reshape(3, 4)) and x.to(b).device == b)
        check(torch.equal(x.t().to(b).cpu(), torch.arange(12.0).reshape(3, 4).t()))
        y = torch.zeros(4, 6, dtype=torch.int64, device=b)
        y[:, ::2].copy_(x.t())  # strides, dtype
        expected = torch.zeros(4, 6, dtype=torch.int64)
        expected[:, ::2] = torch.arange(12.0).reshape(3, 4).t()
        check(torch.equal(y.cpu(), expected))
        z = torch.tensor([1 + 2j], device=a)
        check(z.conj().to(b).item() == 1 - 2j)
        check(torch.ones(3, device=b).copy_(torch.tensor(5.0, device=a)).tolist() == [5] * 3)  # broadcast
        check(torch.zeros(3, device=b).fill_(torch.tensor(5.0, device=a)).tolist() == [5] * 3)

        # Order: after the source's stream, and before what follows on the destination's.
        source, target = torch.zeros(1000, device=a), torch.zeros(1000, device=b)
        torch.accel.synchronize(a), torch.accel.synchronize(b)
        with hold_stream(torch.accel.current_stream(a)):
            source.fill_(1)
            target.copy_(source, non_blocking=True)
            target2 = torch.empty_like(target).copy_(target)
            source.fill_(2)
            check(not torch.accel.current_stream(b).query())
        check(torch.equal(target2.cpu(), torch.ones(1000)) and torch.equal(source.cpu(), torch.full((1000,), 2.0)))
        # and not before what precedes it on the destination's.
        torch.accel.synchronize(a), torch.accel.synchronize(b)
        with hold_stream(torch.accel.current_stream(b)):
            kept = torch.empty_like(target).copy_(target)
            target.copy_(source)
        check(torch.equal(kept.cpu(), torch.ones(1000)) and torch.equal(target.cpu(), torch.full((1000,), 2.0)))

        for call in (lambda: x + x.to(b), lambda: torch.mm(x, x.t().to(b)), lambda: torch.cat([x, x.to(b)])):
            try:
                call()
            except RuntimeError as error:
                check("Expected all tensors to be on the same device" in str(error))
                check("accel:0" in str(error) and "accel:1" in str(error))
            else:
                raise AssertionError("mixed devices were taken")
        check((x.to(b) + 1).device == b and torch.accel.current_device() == 0)
        check(torch.ones(2, device=b).sum().device == b and torch.empty(2, device=b).resize_(5).device == b)
        with torch.accel.device(1):
            check(torch.empty(1, device="accel").device == b)
        """,
        ACCEL_DEVICES=2,
    )
