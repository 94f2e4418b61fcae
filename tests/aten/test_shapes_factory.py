"""Ranges and index matrices: tensors that are computed from scalars."""

import math
import warnings

import numpy as np
import pytest
import torch

from torch_accel.testing import fallback_mode, hold_stream
from torch_accel.testing.held import check_held, same

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8]


def check_made(make):
    """make(device) on both devices."""
    with fallback_mode("error"):
        make("accel")  # what falls back would wait for the held stream for ever
        with hold_stream():
            result = make("accel")
    same(result, make("cpu"))


@pytest.mark.parametrize("dtype", [None, *DTYPES])
@pytest.mark.parametrize("arguments", [(5,), (0,), (1, 9, 3), (9, 1, -2), (3, 3)])
def test_arange(dtype, arguments):
    check_made(lambda device: torch.arange(*arguments, dtype=dtype, device=device))


@pytest.mark.parametrize("dtype", [None, torch.float64, torch.float16])
def test_arange_with_fractions(dtype):
    check_made(lambda device: torch.arange(2.5, 7.1, 0.3, dtype=dtype, device=device))


def test_arange_of_integers():
    check_made(lambda device: torch.arange(0.5, 7.9, 2, dtype=torch.int32, device=device))
    check_made(lambda device: torch.arange(2**62 + 1, 2**62 + 8, 2, device=device))


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex64])
@pytest.mark.parametrize("steps", [0, 1, 2, 7])
def test_linspace_and_logspace(dtype, steps):
    check_made(lambda device: torch.linspace(0, 5, steps, dtype=dtype, device=device))
    check_made(lambda device: torch.logspace(0, 2, steps, base=2, dtype=dtype, device=device))
    start, end = torch.tensor(1.0), torch.tensor(4)
    check_made(lambda device: torch.linspace(start, end, steps, dtype=dtype, device=device))
    check_made(lambda device: torch.logspace(1, end, steps, dtype=dtype, device=device))


def test_out_with_as_many_elements_keeps_its_sizes():
    for out in (
        torch.zeros(2, 3),
        torch.zeros(3, 2).t(),
        torch.zeros(12)[::2],
        torch.zeros(0),
        torch.zeros(0, dtype=torch.int32),
    ):
        check_held(lambda out: torch.arange(6, out=out), out.clone())
        check_held(lambda out: torch.linspace(0, 1, 6, out=out), out.clone())
        check_held(lambda out: torch.logspace(0, 1, 6, out=out), out.clone())
        check_held(lambda out: torch.eye(2, 3, out=out), out.clone())
        check_held(lambda out: torch.eye(3, out=out), out.clone())


def test_linspace_resizes_out_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_held(lambda out: torch.linspace(0, 1, 6, out=out), torch.zeros(3))
        check_held(lambda out: torch.eye(2, out=out), torch.zeros(3))


def test_arange_resizes_out_with_its_own_warning():
    for device in ("cpu", "accel"):
        with pytest.warns(UserWarning, match="does not match the computed number of elements 6"):
            assert torch.arange(6, out=torch.zeros(3, device=device)).shape == (6,)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(3,), (0,), (2, 5), (5, 2), (0, 3)])
def test_eye(dtype, sizes):
    check_made(lambda device: torch.eye(*sizes, dtype=dtype, device=device))


@pytest.mark.parametrize("function", [torch.tril_indices, torch.triu_indices])
@pytest.mark.parametrize("row, col", [(3, 3), (2, 5), (5, 2), (0, 3), (1, 1)])
@pytest.mark.parametrize("offset", [-6, -2, 0, 1, 6])
def test_triangles(function, row, col, offset):
    check_made(lambda device: function(row, col, offset, device=device))
    check_made(lambda device: function(row, col, dtype=torch.int32, device=device))


def test_oracle():
    assert torch.arange(2, 9, 3, device="accel").tolist() == [2, 5, 8]
    np.testing.assert_array_equal(torch.triu_indices(3, 4, 1, device="accel").cpu(), np.stack(np.triu_indices(3, 1, 4)))
    np.testing.assert_allclose(torch.logspace(0, 2, 5, device="accel").cpu(), np.logspace(0, 2, 5), rtol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda device: torch.arange(0, 3, 0, device=device),
        lambda device: torch.arange(0, 3, -1, device=device),
        lambda device: torch.arange(0, 3, 0.5, dtype=torch.int64, device=device),
        lambda device: torch.arange(0, math.inf, device=device),
        lambda device: torch.arange(3, dtype=torch.bool, device=device),
        lambda device: torch.linspace(0, 1, -1, device=device),
        lambda device: torch.logspace(0, 1, -1, device=device),
        lambda device: torch.eye(-1, device=device),
        lambda device: torch.tril_indices(-1, 2, device=device),
        lambda device: torch.triu_indices(2, 2, dtype=torch.complex64, device=device),
    ],
)
def test_errors(make):
    with pytest.raises(Exception) as expected:
        make("cpu")
    with pytest.raises(type(expected.value)) as raised:
        make("accel")
    assert str(raised.value) == str(expected.value)
