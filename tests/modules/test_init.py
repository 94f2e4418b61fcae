"""torch.nn.init on accel: moments against their formulas, reproducible by seed, on the device's generator alone."""

import math

import pytest
import torch
from torch import nn
from torch.nn import init

WEIGHT = (200, 100)  # fan_in 100, fan_out 200
N = WEIGHT[0] * WEIGHT[1]


def uniform(bound):
    return 0.0, bound / math.sqrt(3), bound


def normal(std, mean=0.0):
    return mean, std, None


#: name -> (call, (mean, deviation, bound if there is one))
RANDOM = {
    "uniform_": (lambda t, **k: init.uniform_(t, -2.0, 2.0, **k), uniform(2.0)),
    "normal_": (lambda t, **k: init.normal_(t, 1.0, 3.0, **k), normal(3.0, 1.0)),
    "trunc_normal_": (lambda t, **k: init.trunc_normal_(t, 0.0, 1.0, -1.0, 1.0, **k), (0.0, 0.5396, 1.0)),
    "xavier_uniform_": (lambda t, **k: init.xavier_uniform_(t, gain=2.0, **k), uniform(2 * math.sqrt(6 / 300))),
    "xavier_normal_": (lambda t, **k: init.xavier_normal_(t, **k), normal(math.sqrt(2 / 300))),
    "kaiming_uniform_": (
        lambda t, **k: init.kaiming_uniform_(t, nonlinearity="relu", **k), uniform(math.sqrt(6 / 100)),
    ),
    "kaiming_normal_": (lambda t, **k: init.kaiming_normal_(t, mode="fan_out", **k), normal(math.sqrt(2 / 200))),
    "kaiming_uniform_, leaky": (
        lambda t, **k: init.kaiming_uniform_(t, a=math.sqrt(5), **k), uniform(math.sqrt(1 / 100)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("call, moments", RANDOM.values(), ids=RANDOM.keys())
def test_moments(call, moments):
    mean, deviation, bound = moments
    torch.manual_seed(2)
    t = torch.empty(WEIGHT, device="accel")
    assert call(t) is t
    x = t.double().cpu()
    assert abs(x.mean() - mean) < 5 * deviation / N**0.5
    assert abs(x.std() - deviation) < 5 * deviation / N**0.5  # the error of a deviation is smaller than that
    if bound is not None:
        # the ends are reached, and never passed: 20,000 draws come nearer than a thousandth
        assert bound * 0.999 < x.abs().max() <= bound * (1 + 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("call", [c for c, _ in RANDOM.values()], ids=RANDOM.keys())
def test_seeds_and_generators(call, dtype):
    cpu = torch.get_rng_state()
    drawn = []
    for _ in range(2):
        torch.accel.manual_seed(7)
        drawn.append(call(torch.empty(9, 5, device="accel", dtype=dtype)))
    default = torch.accel.get_rng_state()
    drawn.append(
        call(torch.empty(9, 5, device="accel", dtype=dtype), generator=torch.Generator("accel").manual_seed(7))
    )
    assert torch.equal(drawn[0], drawn[1]) and torch.equal(drawn[0], drawn[2])
    assert torch.equal(torch.get_rng_state(), cpu) and torch.equal(torch.accel.get_rng_state(), default)
    assert not torch.equal(drawn[0], call(torch.empty(9, 5, device="accel", dtype=dtype)))


FIXED = {
    "zeros_": init.zeros_,
    "ones_": init.ones_,
    "constant_": lambda t: init.constant_(t, 2.5),
    "eye_": lambda t: init.eye_(t),
    "dirac_": lambda t: init.dirac_(t.view(4, 2, 3), groups=2),
}


@pytest.mark.parametrize("call", FIXED.values(), ids=FIXED.keys())
def test_fixed_values(call):
    assert torch.equal(call(torch.empty(4, 6, device="accel")).cpu(), call(torch.empty(4, 6)))


@pytest.mark.parametrize("shape", [(5, 5), (3, 7), (7, 3), (4, 2, 3)], ids=str)
def test_orthogonal(shape):
    drawn = []
    for _ in range(2):
        torch.manual_seed(4)
        drawn.append(init.orthogonal_(torch.empty(shape, device="accel"), gain=2.0))
    assert torch.equal(*drawn) and drawn[0].is_accel
    m = drawn[0].cpu().double().flatten(1)
    product = m @ m.t() if m.shape[0] <= m.shape[1] else m.t() @ m
    torch.testing.assert_close(product, 4 * torch.eye(len(product), dtype=torch.float64), rtol=0, atol=1e-5)


def test_sparse():
    drawn = []
    for _ in range(2):
        torch.manual_seed(4)
        drawn.append(init.sparse_(torch.empty(50, 40, device="accel"), sparsity=0.3, std=0.5))
    assert torch.equal(*drawn)
    assert (drawn[0] == 0).sum(0).tolist() == [15] * 40
    assert abs(drawn[0][drawn[0] != 0].std().item() - 0.5) < 0.05


RESET = {
    "Linear": (lambda: nn.Linear(100, 50, device="accel"), 0.1),
    "Conv2d": (lambda: nn.Conv2d(10, 50, (2, 5), device="accel"), 0.1),
    "Bilinear": (lambda: nn.Bilinear(100, 10, 5, device="accel"), 0.1),
    "LSTM": (lambda: nn.LSTM(10, 100, device="accel"), 0.1),
    "GRUCell": (lambda: nn.GRUCell(10, 100, device="accel"), 0.1),
}


@pytest.mark.parametrize("make, bound", RESET.values(), ids=RESET.keys())
def test_modules_born_on_accel_draw_within_their_bounds(make, bound):
    torch.manual_seed(5)
    module = make()
    torch.manual_seed(5)
    again = make()
    for p, q in zip(module.parameters(), again.parameters()):
        assert torch.equal(p, q)
        assert p.numel() < 1000 or 0.99 * bound < p.abs().max().item() <= bound * (1 + 1e-6)
        assert p.numel() < 1000 or abs(p.std().item() - bound / 3**0.5) < 5 * bound / p.numel() ** 0.5


def test_errors_and_warnings_are_the_cpus():
    calls = [
        lambda d: init.xavier_uniform_(torch.empty(3, device=d)),
        lambda d: init.dirac_(torch.empty(3, 2, device=d)),
        lambda d: init.eye_(torch.empty(3, device=d)),
        lambda d: init.kaiming_normal_(torch.empty(3, 2, device=d), mode="fan"),
        lambda d: init.orthogonal_(torch.empty(3, device=d)),
        lambda d: init.normal_(torch.empty(3, device=d), std=-1.0),
    ]
    for call in calls:
        with pytest.raises((ValueError, RuntimeError)) as expected:
            call("cpu")
        with pytest.raises(expected.type) as raised:
            call("accel")
        assert str(raised.value) == str(expected.value)
    with pytest.warns(UserWarning, match="zero-element"):
        init.kaiming_uniform_(torch.empty(0, 3, device="accel"))
