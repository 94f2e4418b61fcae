"""Meta tensors and FakeTensorMode: what accel would give, without its memory or kernels."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from tests.memory import settled
from torch_accel.testing import fallback_mode

OPERATORS = {
    "add": lambda x: x + x[0],
    "a 0-dim CPU operand": lambda x: x * torch.tensor(2.0),
    "matmul": lambda x: x @ x.t(),
    "sum": lambda x: x.sum(1, keepdim=True),
    "sort": lambda x: x.sort(descending=True),
    "cat": lambda x: torch.cat([x, x]),
    "transposed": lambda x: x.t() + 1,
    "index": lambda x: x[[0, 2]],
    "where": lambda x: torch.where(x > 1, x, 0.0),
    "masked_fill": lambda x: x.masked_fill(x > 1, 0.0),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, (4,)),
    "softmax": lambda x: x.softmax(1),
    "conv": lambda x: torch.nn.functional.conv2d(x[None, None], x[None, None, :2, :2]),
    "linear": lambda x: torch.nn.functional.linear(x, x),
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]),
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.5),
    "rand_like": lambda x: torch.rand_like(x),
    "clone of channels_last": lambda x: x.view(1, 3, 2, 2).to(memory_format=torch.channels_last) * 2,
    "new_empty": lambda x: x.new_empty(2, 3),
    "to another dtype": lambda x: x.to(torch.float16),
    "in place": lambda x: x.clone().add_(1),
    "out=": lambda x: torch.exp(x, out=torch.empty_like(x)),
    "embedding": lambda x: torch.nn.functional.embedding(torch.tensor([0, 2], device=x.device), x),
    "foreach": lambda x: torch._foreach_add([x, x[0]], 1.0),
}


def tensors(result):
    return list(result) if isinstance(result, (list, tuple)) else [result]


@pytest.mark.parametrize("call", OPERATORS.values(), ids=OPERATORS.keys())
def test_fake_tensors_foresee_the_real_ones(call):
    real = tensors(call(torch.arange(12.0, device="accel").view(3, 4)))
    with FakeTensorMode(), fallback_mode("error"):  # no kernel runs at all
        fake = tensors(call(torch.empty(3, 4, device="accel")))
    assert len(fake) == len(real)
    for mine, theirs in zip(fake, real):
        assert isinstance(mine, FakeTensor) and mine.device == torch.device("accel", 0)
        assert (mine.shape, mine.stride(), mine.dtype) == (theirs.shape, theirs.stride(), theirs.dtype)


def test_fake_tensors_of_real_ones():
    mode = FakeTensorMode()
    x = torch.ones(3, 4, device="accel")
    fake = mode.from_tensor(x)
    with mode:
        y = fake @ fake.t()
    assert fake.device == y.device == x.device and y.shape == (3, 3)


def test_fake_tensors_need_no_memory():
    before = settled()
    with FakeTensorMode():
        x = torch.empty(1 << 40, device="accel")
        y = (x + 1).view(1 << 20, -1).sum(0)
        model = torch.nn.Linear(1 << 20, 1 << 20, device="accel")
    assert y.shape == (1 << 20,) and model.weight.is_accel and torch.accel.memory_allocated() == before


def test_fake_devices():
    with FakeTensorMode():
        x = torch.empty(2, device="accel")
        assert x.cpu().device.type == "cpu" and x.to("cpu").to("accel").device == torch.device("accel", 0)
        assert torch.empty(2).to("accel:0").device == x.device and (x + torch.empty(())).device == x.device
        with pytest.raises(Exception, match="accel:0"):
            x + torch.empty(2)
        with pytest.raises(RuntimeError):
            torch.ones(3, 4, device="accel") @ torch.ones(3, 4, device="accel")


def test_fake_training_step():
    with FakeTensorMode(), torch.device("accel"):
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten())
        loss = model(torch.empty(2, 3, 8, 8, device="accel")).square().mean()
        loss.backward()
        assert all(p.grad.device == p.device == torch.device("accel", 0) for p in model.parameters())
        optimizer = torch.optim.AdamW(model.parameters())
        optimizer.step()


META = {
    "to meta": lambda x: x.to("meta"),
    "operator": lambda x: x.to("meta") @ torch.empty(4, 5, device="meta"),
    "empty_like": lambda x: torch.empty_like(x, device="meta"),
}


@pytest.mark.parametrize("call", META.values(), ids=META.keys())
def test_meta_is_the_cpus(call):
    actual, expected = call(torch.ones(3, 4, device="accel").t().t()), call(torch.ones(3, 4))
    assert (actual.device.type, actual.shape, actual.stride()) == ("meta", expected.shape, expected.stride())


def test_meta_errors():
    x, meta = torch.ones(3, device="accel"), torch.ones(3, device="meta")
    with pytest.raises(NotImplementedError, match="meta"):
        meta.to("accel")
    with pytest.raises(RuntimeError):
        x + meta
    with pytest.raises((NotImplementedError, RuntimeError)):
        x.copy_(meta)
    assert torch.equal(x.cpu(), torch.ones(3))


def test_module_from_meta():
    with torch.device("meta"):
        model = torch.nn.Linear(3, 2)
    state = torch.nn.Linear(3, 2).state_dict()
    model.to_empty(device="accel").load_state_dict(state)
    x = torch.ones(1, 3)
    assert torch.equal(model(x.accel()).cpu(), torch.nn.functional.linear(x, state["weight"], state["bias"]))
    with torch.device("meta"):
        assigned = torch.nn.Linear(3, 2)
    assigned.load_state_dict({name: value.accel() for name, value in state.items()}, assign=True)
    assert assigned.weight.is_accel and torch.equal(assigned.weight.cpu(), state["weight"])
