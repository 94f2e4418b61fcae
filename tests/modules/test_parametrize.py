"""Weights that are computed: weight_norm, spectral_norm, orthogonal, parametrizations of one's own; against the CPU."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from tests.modules.against_cpu import check_equal, check_step, leaves

X = torch.linspace(-1, 1, 12).view(3, 4)
IMAGES = torch.linspace(-1, 1, 50).view(1, 2, 5, 5)

WRAPS = {
    "weight_norm": (parametrizations.weight_norm, {}),
    "weight_norm of columns": (parametrizations.weight_norm, {"dim": 1}),
    "weight_norm of all": (parametrizations.weight_norm, {"dim": None}),
    "spectral_norm": (parametrizations.spectral_norm, {"n_power_iterations": 2}),
    "spectral_norm of columns": (parametrizations.spectral_norm, {"dim": 1}),
    "old weight_norm": (nn.utils.weight_norm, {}),
    "old spectral_norm": (nn.utils.spectral_norm, {}),
}
MODULES = {"linear": (nn.Linear, (4, 5), X), "conv": (nn.Conv2d, (2, 3, 3), IMAGES)}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("cls, arguments, x", MODULES.values(), ids=MODULES.keys())
@pytest.mark.parametrize("wrap, options", WRAPS.values(), ids=WRAPS.keys())
@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
def test_wrapped_weights(wrap, options, cls, arguments, x, training):
    torch.manual_seed(0)
    module = wrap(cls(*arguments), **options)
    # copied as a state: an old hook leaves a computed tensor behind that deepcopy refuses
    results = []
    for device in ("accel", "cpu"):
        m = wrap(cls(*arguments), **options)
        m.load_state_dict(module.state_dict())
        m.to(device).train(training)
        for _ in range(2):
            out = m(x.to(device))
            out.square().sum().backward()
        results.append([out, [p.grad for p in m.parameters()], m.state_dict()])
    check_equal(*results)


@pytest.mark.parametrize("wrap", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_wrapped_on_accel(wrap):
    torch.manual_seed(0)
    base = nn.Linear(4, 5)
    results = []
    for device in ("accel", "cpu"):
        module = wrap(copy.deepcopy(base).to(device))
        with torch.no_grad():  # spectral_norm begins at random vectors
            for i, t in enumerate(module.buffers()):
                t.copy_(torch.linspace(0.1, 1 + i, t.numel()))
        results.append([module(X.to(device)), module])
        parametrize.remove_parametrizations(module, "weight")
        results[-1].append([module.weight, module(X.to(device))])
    check_equal(*results)


@pytest.mark.parametrize("shape", [(5, 5), (6, 3), (3, 6)], ids=str)
@pytest.mark.parametrize("map_", ["matrix_exp", "cayley", "householder"])
def test_orthogonal(map_, shape):
    torch.manual_seed(0)
    module = parametrizations.orthogonal(nn.Linear(*shape, bias=False).double(), orthogonal_map=map_)
    check_step(module, torch.linspace(-1, 1, 2 * shape[0], dtype=torch.float64).view(2, -1), rtol=1e-12, atol=1e-12)
    weight = module.to("accel").weight.detach().cpu()
    small = weight @ weight.t() if weight.shape[0] <= weight.shape[1] else weight.t() @ weight
    torch.testing.assert_close(small, torch.eye(min(shape), dtype=torch.float64))
    new = nn.init.orthogonal_(torch.empty_like(weight))
    module.weight = new.to("accel")
    torch.testing.assert_close(module.weight.detach().cpu(), new, rtol=1e-12, atol=1e-12)


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).transpose(-1, -2)

    def right_inverse(self, x):
        return x.triu()


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("shift", torch.tensor(0.5))

    def forward(self, x):
        return x * self.scale + self.shift


def test_parametrizations_of_ones_own_in_a_chain():
    torch.manual_seed(0)
    module = nn.Linear(4, 4)
    parametrize.register_parametrization(module, "weight", Symmetric())
    parametrize.register_parametrization(module, "weight", Scaled())
    check_step(module, X)
    module.to("accel")
    assert module.parametrizations.weight.original.is_accel and module.parametrizations.weight[1].scale.is_accel
    assert torch.equal(module.weight, module.weight.t())


def test_caching_computes_once():
    module = nn.Linear(4, 4, device="accel")
    calls = []

    class Counted(nn.Module):
        def forward(self, x):
            calls.append(x.device.type)
            return x * 2

    parametrize.register_parametrization(module, "weight", Counted())
    calls.clear()
    with parametrize.cached():
        first, second = module.weight, module.weight
        assert first is second and first.is_accel
    assert calls == ["accel"]
    assert module.weight is not first and len(calls) == 2


def test_state_and_copies():
    torch.manual_seed(0)
    module = parametrizations.spectral_norm(nn.Linear(4, 5)).to("accel")
    module(X.to("accel"))
    other = parametrizations.spectral_norm(nn.Linear(4, 5, device="accel"))
    other.load_state_dict(module.state_dict())
    for m in (other, copy.deepcopy(module)):
        assert torch.equal(m.eval()(X.to("accel")), copy.deepcopy(module).eval()(X.to("accel")))
        assert {t.untyped_storage().data_ptr() for t in leaves(m)}.isdisjoint(
            t.untyped_storage().data_ptr() for t in leaves(module)
        )


def test_a_parametrization_changes_the_dtype_only_if_unsafe():
    class Half(nn.Module):
        def forward(self, x):
            return x.half()

    module = nn.Linear(2, 2, device="accel")
    with pytest.raises(ValueError, match="may not change the dtype"):
        parametrize.register_parametrization(module, "weight", Half())
    parametrize.register_parametrization(module, "weight", Half(), unsafe=True)
    assert module.weight.dtype == torch.float16 and module.weight.is_accel
