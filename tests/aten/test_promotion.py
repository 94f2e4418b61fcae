"""Type promotion: dtypes and 0-dim CPU tensors as torch's rules have them, and as the CPU has the same expression."""

import itertools

import numpy as np
import pytest
import torch

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]
VALUES = [0, 1, 1, 0, 1]


def outcome(call, *operands):
    """The result, or the text of the error."""
    try:
        return call(*operands)
    except RuntimeError as error:
        return str(error).replace("accel:0", "cpu")


def check(call, on_accel, on_cpu):
    """The call gives the same on both, dtypes and errors included."""
    actual, expected = outcome(call, *on_accel), outcome(call, *on_cpu)
    what = [getattr(operand, "dtype", operand) for operand in on_cpu]
    assert type(actual) is type(expected), (what, actual, expected)
    if isinstance(expected, torch.Tensor):
        assert actual.is_accel and actual.dtype == expected.dtype, (what, actual.dtype, expected.dtype)
        torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=0, equal_nan=True, msg=str(what))
    else:
        assert actual == expected, what


OPERATORS = {
    "add": torch.add,
    "mul": torch.mul,
    "true_divide": torch.true_divide,
    "floor_divide": lambda a, b: torch.floor_divide(a, b + 1),
    "pow": torch.pow,
    "maximum": torch.maximum,
    "eq": torch.eq,
    "lt": torch.lt,
    "bitwise_or": torch.bitwise_or,
    "where": lambda a, b: torch.where(b == 0, a, b),
    "cat": lambda a, b: torch.cat([a, b.reshape(-1)]),
    "atan2": torch.atan2,
    "copysign": torch.copysign,
}


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS.keys())
@pytest.mark.parametrize("dim", [0, 1])
def test_two_tensors(operator, dim):
    for one, two in itertools.product(DTYPES, repeat=2):
        a, b = torch.tensor(VALUES).to(one), torch.tensor(VALUES if dim else 1).to(two)
        check(operator, (a.accel(), b.accel()), (a, b))


@pytest.mark.parametrize("name", [n for n in OPERATORS if n != "cat"])
def test_0_dim_cpu_tensor(name):
    operator = OPERATORS[name]
    for one, two in itertools.product(DTYPES, repeat=2):
        a, b = torch.tensor(VALUES).to(one), torch.tensor(1).to(two)
        check(operator, (a.accel(), b), (a, b))
        if name != "where":
            check(operator, (b, a.accel()), (b, a))


@pytest.mark.parametrize("scalar", [True, 2, 2.5, 1 + 2j, 2**40, -1])
@pytest.mark.parametrize("name", ["add", "mul", "true_divide", "pow", "eq"])
def test_python_scalars(name, scalar):
    operator = OPERATORS[name]
    for dtype in DTYPES:
        a = torch.tensor(VALUES).to(dtype)
        check(operator, (a.accel(), scalar), (a, scalar))


IN_PLACE = {
    "add_": lambda a, b: a.add_(b),
    "mul_": lambda a, b: a.mul_(b),
    "div_": lambda a, b: a.div_(b),
    "pow_": lambda a, b: a.pow_(b),
    "eq_": lambda a, b: a.eq_(b),
    "copy_": lambda a, b: a.copy_(b),
    "masked_fill_": lambda a, b: (
        a.masked_fill_(torch.ones(5, dtype=torch.bool, device=a.device), b.real.reshape(-1)[0])
        if not b.is_complex()
        else a
    ),
    "index_put_": lambda a, b: a.index_put_((torch.tensor([0], device=a.device),), b.reshape(-1)[:1]),
}


@pytest.mark.parametrize("operator", IN_PLACE.values(), ids=IN_PLACE.keys())
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_in_place_keeps_its_dtype_or_refuses(operator):
    for one, two in itertools.product(DTYPES, repeat=2):
        a, b = torch.tensor(VALUES).to(one), torch.tensor([1, 0, 1, 1, 1]).to(two)
        check(operator, (a.accel(), b.accel()), (a, b))


def test_out_takes_what_the_result_casts_to():
    def call(x, dtype):
        return torch.add(x, x, out=torch.empty(5, dtype=dtype, device=x.device))

    for one, two in itertools.product(DTYPES, repeat=2):
        a = torch.tensor(VALUES).to(one)
        check(call, (a.accel(), two), (a, two))


@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16])
def test_default_dtype(default):
    torch.set_default_dtype(default)
    try:
        i = torch.arange(3, device="accel")
        assert (i / 2).dtype == default and (i * 1.5).dtype == default and i.float().mean().dtype == torch.float32
        assert torch.ones(2, device="accel").dtype == default and (i.to(torch.int8) + 2).dtype == torch.int8
    finally:
        torch.set_default_dtype(torch.float32)


def test_result_type():
    x, y = torch.ones(3, dtype=torch.int8, device="accel"), torch.tensor(1.5, dtype=torch.float64)
    assert torch.result_type(x, y) == torch.float64 and torch.result_type(x, 1) == torch.int8
    assert torch.result_type(x.float(), y) == torch.float32 and torch.result_type(x, 1.5) == torch.float32
    assert torch.result_type(x, y.accel()) == torch.float64
    assert torch.can_cast(x.dtype, torch.float32)


def test_against_numpy():
    # NumPy's promotion of arrays is torch's where both have the kinds: checked by dtypes, not by torch's CPU.
    for one, two in itertools.product((np.int8, np.int32, np.int64, np.float64, np.complex128), repeat=2):
        a, b = np.arange(3).astype(one), np.arange(3).astype(two)
        result = (torch.from_numpy(a).accel() * torch.from_numpy(b).accel()).cpu().numpy()
        assert result.dtype == (a * b).dtype
        np.testing.assert_array_equal(result, a * b)
