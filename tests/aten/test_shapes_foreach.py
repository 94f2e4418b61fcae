"""Operators over lists: one launch a list, whatever the form, with the CPU's bits, strides and errors."""

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

from torch_accel._native import _C
from torch_accel.conformance.compare import Replica
from torch_accel.testing import fallback_mode, hold_stream

OPS = sorted(name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::_foreach_"))


def on(device, value):
    """A copy with the same layouts."""
    return tree_map(lambda leaf: Replica(device).tensor(leaf) if isinstance(leaf, torch.Tensor) else leaf, value)


def overload(name):
    op, _, variant = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, op), variant or "default")


def tensors(generator, square=False, filled=False):
    """Contiguous, transposed, channels last, strided and empty ones, with values from 0.1 to 0.9."""

    def make(*size):
        return torch.rand(size, generator=generator) * 0.8 + 0.1

    if square:
        return [make(8, 8), make(8, 8).t(), make(8, 16)[:, ::2]]
    some = [make(3, 5), make(5, 4).t(), make(2, 3, 4, 5).to(memory_format=torch.channels_last), make(4, 12)[:, ::2]]
    return some if filled else [*some, make(0, 3)]


def arguments(op):
    """Arguments for an overload, from its schema."""
    generator = torch.Generator().manual_seed(0)
    lists = []
    for argument in op._schema.arguments:
        kind = str(argument.type)
        if argument.is_out:
            continue
        if kind == "List[Tensor]":
            lists.append(tensors(generator, "mm" in op.__name__, "max." in str(op)))
            value = lists[-1]
        elif kind == "List[number]":
            value = [1.5 + i / 4 for i in range(len(lists[0]))]
        elif argument.name == "scalars":
            value = torch.arange(1.0, 1 + len(lists[0]))
        elif kind == "Tensor":
            value = torch.tensor(1.5)
        elif kind == "number":
            value = 1.5
        else:
            value = None if "Optional" in kind else False
        yield argument, value


def call(op, device):
    """Results and lists of arguments after a call."""
    positional, keywords = [], {}
    for argument, value in arguments(op):
        if isinstance(value, list) and isinstance(value[0], torch.Tensor):
            value = on(device, value)
        elif isinstance(value, torch.Tensor) and argument.name != "scalars":
            value = value.to(device)
        (keywords.__setitem__(argument.name, value) if argument.kwarg_only else positional.append(value))
    if any(argument.is_out for argument in op._schema.arguments):
        keywords["out"] = [torch.empty(0, device=device) for _ in positional[0 if type(positional[0]) is list else 1]]
    waits = sum(_C._wait_counts().values())
    results = op(*positional, **keywords)
    everything = [results, keywords.get("out"), positional]
    return [leaf for leaf in tree_leaves(everything) if isinstance(leaf, torch.Tensor)], waits


def same(actual, expected):
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    assert actual.stride() == expected.stride()
    assert torch.equal(actual.cpu(), expected) or torch.equal(actual.cpu().isnan(), expected.isnan())


@pytest.mark.parametrize("name", OPS)
def test_every_overload_is_one_queued_launch(name, queued):
    op = overload(name)
    expected, _ = call(op, "cpu")
    call(op, "accel")
    torch.accel.synchronize()
    misplaced = _C._misplaced_results()
    with fallback_mode("error"):
        actual, waits = call(op, "accel")
        assert sum(_C._wait_counts().values()) == waits
    for a, e in zip(actual, expected, strict=True):
        same(a, e)
    assert _C._misplaced_results() == misplaced


INTS = [torch.arange(6).view(2, 3), torch.arange(4)]
FLOATS = [torch.arange(6.0).view(2, 3) / 7, torch.arange(4.0) - 1.5]
COMPLEX = [torch.complex(FLOATS[0], FLOATS[0] - 1).t(), torch.complex(FLOATS[1], FLOATS[1])]


@pytest.mark.parametrize(
    "function, arguments",
    [
        (torch._foreach_exp, [INTS]),
        (torch._foreach_div, [INTS, INTS[::-1][1:] + [torch.ones(4, dtype=torch.int32)]]),
        (torch._foreach_mul, [INTS, FLOATS]),
        (torch._foreach_add, [[*INTS, *FLOATS], 1.5]),
        (torch._foreach_add, [[*FLOATS, torch.tensor(2.0), torch.tensor(3)], [1, 2.5, 1 + 2j, True]]),
        (torch._foreach_mul, [[torch.ones(3, dtype=torch.bool), *INTS], True]),
        (torch._foreach_sub, [[*FLOATS, torch.tensor(4.0)], [f.double() for f in [*FLOATS, torch.ones(3)]]]),
        (torch._foreach_pow, [2, INTS]),
        (torch._foreach_pow, [INTS, [2, 0.5]]),
        (torch._foreach_abs, [[*COMPLEX, *INTS]]),
        (torch._foreach_norm, [COMPLEX, 1]),
        (torch._foreach_norm, [FLOATS, float("inf"), torch.float64]),
        (torch._foreach_max, [INTS]),
        (torch._foreach_addcmul_, [FLOATS, [f.t() for f in [torch.ones(3, 2), torch.ones(1)]], INTS, [2, 3.0]]),
        (torch._foreach_copy_, [INTS, [torch.ones(3), torch.ones(1)]]),
        (torch._foreach_mul_, [COMPLEX, COMPLEX]),
        (torch._foreach_clone, [COMPLEX]),
    ],
)
def test_dtypes_and_broadcasting_are_the_cpus(function, arguments, queued):
    here, there = on("accel", arguments), on("cpu", arguments)
    expected = function(*there)
    function(*on("accel", arguments))  # the first call of a kernel may be tried on the host
    waits = sum(_C._wait_counts().values())
    with fallback_mode("error"):
        actual = function(*here)
        assert sum(_C._wait_counts().values()) == waits
    for a, e in zip(tree_leaves([actual, here]), tree_leaves([expected, there]), strict=True):
        if isinstance(e, torch.Tensor):
            same(a, e)


@pytest.mark.parametrize(
    "function, arguments",
    [
        (torch._foreach_add, [FLOATS, FLOATS[:1]]),
        (torch._foreach_add, [FLOATS, []]),
        (torch._foreach_mul, [FLOATS, [1.0]]),
        (torch._foreach_add, [FLOATS, [torch.ones(5), torch.ones(4)]]),
        (torch._foreach_add_, [FLOATS, [torch.ones(2, 2, 3), torch.ones(4)]]),
        (torch._foreach_div_, [INTS, 2]),
        (torch._foreach_mul_, [INTS, FLOATS]),
        (torch._foreach_exp_, [INTS]),
        (torch._foreach_abs_, [COMPLEX]),
        (torch._foreach_sub, [[torch.ones(3, dtype=torch.bool)], True]),
        (torch._foreach_frac, [[torch.ones(3000, dtype=torch.int64)] * 3]),
        (torch._foreach_lerp, [FLOATS, [f.double() for f in FLOATS], 0.5]),
        (torch._foreach_addcdiv, [INTS, INTS, INTS]),
        (torch._foreach_max, [[torch.ones(0)]]),
        (torch._foreach_norm, [[torch.ones(0)], float("inf")]),
        (torch._foreach_pow, [INTS, -1]),
        (torch._foreach_add_, [[torch.ones(1).expand(3)], 1]),
        (torch._foreach_clone, [FLOATS, torch.channels_last]),
    ],
)
def test_errors_are_the_cpus_at_the_call(function, arguments):
    keywords = {}
    if function is torch._foreach_clone:
        arguments, keywords = arguments[:1], {"memory_format": arguments[1]}
    with pytest.raises(Exception) as there:
        function(*on("cpu", arguments), **keywords)
    with pytest.raises(type(there.value)) as here:
        function(*on("accel", arguments), **keywords)
    assert str(here.value) == str(there.value)
    torch.accel.synchronize()


def test_two_thousand_tensors_in_one_launch(queued):
    lists = [[torch.full((2,), float(i + k), device="accel") for i in range(2000)] for k in range(3)]
    with fallback_mode("error"), hold_stream():
        torch._foreach_addcmul_(*lists, value=2)
        roots = torch._foreach_sqrt(lists[0])
    i = np.arange(2000.0, dtype=np.float32)
    expected = i + 2 * (i + 1) * (i + 2)
    assert np.array_equal(torch.stack(lists[0]).cpu().numpy()[:, 1], expected)
    np.testing.assert_allclose(torch.stack(roots).cpu().numpy()[:, 0], np.sqrt(expected), rtol=3e-7)


def test_tensors_of_one_storage_and_of_one_list_twice(queued):
    def run(device):
        base = torch.arange(12.0).to(device)
        parts = list(base.split(3))
        torch._foreach_mul_([*parts, parts[0]], 2)
        torch._foreach_add_(parts, [parts[3], *parts[:3]])
        return base.cpu()

    assert torch.equal(run("accel"), run("cpu"))


def test_host_scalars_count_as_they_were(queued):
    x = [torch.ones(3, device="accel") for _ in range(2)]
    scalars, number = torch.tensor([2.0, 3.0]), torch.tensor(5.0)
    with hold_stream():
        products = torch._foreach_addcmul(x, x, x, scalars)
        scaled = torch._foreach_mul(x, number)
        scalars.zero_(), number.zero_()
        del scalars, number
    assert [t[0].item() for t in products] == [3, 4]
    assert [t[0].item() for t in scaled] == [5, 5]


def test_packed_scalars_may_be_on_the_device(queued):
    x = [torch.ones(3, device="accel") for _ in range(2)]
    with hold_stream():
        y = torch._foreach_addcmul(x, x, x, torch.tensor([2.0, 3.0]).to("accel", non_blocking=True))
    assert [t[0].item() for t in y] == [3, 4]
    with pytest.raises(RuntimeError, match="Expected length of scalars to match input of length 2 but got 3 instead"):
        torch._foreach_addcmul(x, x, x, torch.ones(3))


def test_lists_of_several_devices_go_tensor_by_tensor():
    device = [torch.zeros(3, device="accel"), torch.zeros(2, 2, device="accel")]
    host = [torch.arange(3.0), torch.ones(2, 2)]
    torch._foreach_copy_(device, host)
    assert torch.equal(device[0].cpu(), host[0]) and torch.equal(device[1].cpu(), host[1])
    mixed = torch._foreach_add([device[0], host[1]], 1)
    assert [str(t.device) for t in mixed] == ["accel:0", "cpu"]
    assert torch.equal(mixed[0].cpu(), host[0] + 1)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch._foreach_add(device, host)


def test_what_is_written_is_counted():
    for device in ("cpu", "accel"):
        x = [torch.ones(3, device=device, requires_grad=True), torch.ones(2, device=device, requires_grad=True)]
        y = torch._foreach_mul(x, 2)
        squares = [t * t for t in y]
        torch._foreach_add_(y, 1)
        assert [t._version for t in y] == [1, 1]
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            squares[0].sum().backward()
        with torch.no_grad():
            torch.ops.aten._foreach_exp.out(x, out=(out := [torch.empty(3, device=device), x[1]]))
        assert [t._version for t in out] == [1, 1]
    with torch.inference_mode():
        z = [torch.ones(3, device="accel")]
        torch._foreach_add_(z, 1)


def test_gradients_through_a_list():
    def run(device):
        x = [torch.arange(1.0, 4).to(device).requires_grad_(), torch.ones(2, 2, device=device, requires_grad=True)]
        y = torch._foreach_mul(torch._foreach_sqrt(x), x)
        return torch.autograd.grad([t.sum() for t in y], x)

    for a, e in zip(run("accel"), run("cpu"), strict=True):
        same(a, e)
