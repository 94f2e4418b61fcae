"""multinomial: the indices that NumPy computes from the very numbers drawn; errors; the seed."""

import numpy as np
import pytest
import torch

from torch_accel.testing import hold_stream

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def seed():
    torch.accel.manual_seed(7)


def weights(*shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(1)) * (torch.arange(shape[-1]) % 4 > 0)


def next_draws(fill):
    """What `fill` draws from the state that the next call finds."""
    state = torch.accel.get_rng_state()
    result = fill().cpu().double().numpy()
    torch.accel.set_rng_state(state)
    return result


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(9,), (3, 12), (1, 1)])
def test_with_replacement(shape, dtype):
    w = weights(*shape).to(dtype) + (0.5 if shape == (1, 1) else 0)
    uniform = next_draws(lambda: torch.rand(*shape[:-1], 50, device="accel"))
    ours = torch.multinomial(w.to("accel"), 50, replacement=True)
    sums = w.double().numpy().cumsum(-1)
    expected = [
        np.searchsorted(s, u * s[-1], side="right")
        for s, u in zip(np.atleast_2d(sums), np.atleast_2d(uniform), strict=True)
    ]
    assert ours.dtype == torch.int64
    assert np.array_equal(ours.cpu().numpy(), np.array(expected).reshape(*shape[:-1], 50))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(9,), (3, 12)])
def test_without_replacement(shape, dtype):
    w = weights(*shape).to(dtype)
    exponential = next_draws(lambda: torch.empty(shape, device="accel").exponential_())
    ours = torch.multinomial(w.to("accel"), 5)
    with np.errstate(divide="ignore"):
        expected = np.argsort(exponential / w.double().numpy(), axis=-1, kind="stable")[..., :5]
    assert np.array_equal(ours.cpu().numpy(), expected)


def test_frequencies():
    w = torch.tensor([1.0, 0, 2, 5])
    counts = torch.bincount(torch.multinomial(w.to("accel"), 20000, replacement=True).cpu(), minlength=4)
    torch.testing.assert_close(counts / 20000, w / w.sum(), atol=0.02, rtol=0)
    first = torch.stack([torch.multinomial(w.to("accel"), 2)[0] for _ in range(2000)]).cpu()
    torch.testing.assert_close(torch.bincount(first, minlength=4) / 2000, w / w.sum(), atol=0.05, rtol=0)


def test_is_queued_and_takes_strided_arguments():
    w = torch.stack([weights(3, 8), weights(3, 8)], -1).to("accel")[..., 0]
    out = torch.empty(5, 3, dtype=torch.int64, device="accel").t()
    with hold_stream():
        torch.multinomial(w, 5, out=out)
    torch.accel.manual_seed(7)
    assert torch.equal(out, torch.multinomial(w.contiguous(), 5))
    generator = torch.Generator("accel").manual_seed(3)
    first = torch.multinomial(w, 5, generator=generator)
    assert torch.equal(first, torch.multinomial(w, 5, generator=generator.manual_seed(3)))


CALLS = {
    "dimensions": lambda d: torch.multinomial(torch.ones(1, 1, 1, device=d), 1),
    "dtype": lambda d: torch.multinomial(torch.ones(3, dtype=torch.int64, device=d), 1),
    "no sample": lambda d: torch.multinomial(torch.ones(3, device=d), 0),
    "too many": lambda d: torch.multinomial(torch.ones(3, device=d), 4),
    "out dtype": lambda d: torch.multinomial(torch.ones(3, device=d), 1, out=torch.empty(1, device=d)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_errors_at_the_call_are_the_cpus(call):
    with pytest.raises(RuntimeError) as there:
        call("cpu")
    with pytest.raises(RuntimeError) as here:
        call("accel")
    assert str(here.value) == str(there.value)


@pytest.mark.parametrize("bad", [[-1.0, 2], [float("nan"), 1], [float("inf"), 1], [0.0, 0]])
@pytest.mark.parametrize("replacement", [True, False])
def test_bad_weights_raise_at_the_synchronisation(bad, replacement, queued):
    torch.multinomial(torch.tensor(bad, device="accel"), 1, replacement=replacement)
    with pytest.raises(torch.AcceleratorError, match=r"multinomial: (probability tensor contains|invalid multinomial)"):
        torch.accel.synchronize()


def test_nothing():
    assert torch.multinomial(torch.ones(0, 3, device="accel"), 2).shape == (0, 2)
