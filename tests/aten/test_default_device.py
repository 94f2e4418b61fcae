"""accel as the default device: factories, modules and contexts, and what stays on the CPU."""

import pytest
import torch


@pytest.fixture(params=["set_default_device", "context", "context with an index", "nested"])
def default(request):
    if request.param == "set_default_device":
        torch.set_default_device("accel")
        yield
        torch.set_default_device(None)
    elif request.param == "nested":
        with torch.device("cpu"), torch.device("accel"):
            yield
    else:
        with torch.device("accel" if request.param == "context" else "accel:0"):
            yield


FACTORIES = {
    "empty": lambda: torch.empty(2),
    "zeros": lambda: torch.zeros(2),
    "ones": lambda: torch.ones(2),
    "full": lambda: torch.full((2,), 3.0),
    "arange": lambda: torch.arange(3),
    "range": lambda: torch.linspace(0, 1, 3),
    "eye": lambda: torch.eye(2),
    "tensor": lambda: torch.tensor([1.0]),
    "as_tensor": lambda: torch.as_tensor([1.0]),
    "scalar_tensor": lambda: torch.scalar_tensor(1.0),
    "rand": lambda: torch.rand(2),
    "randn": lambda: torch.randn(2),
    "randint": lambda: torch.randint(5, (2,)),
    "randperm": lambda: torch.randperm(4),
    "tril_indices": lambda: torch.tril_indices(2, 2),
    "empty_strided": lambda: torch.empty_strided((2,), (1,)),
    "hann_window": lambda: torch.hann_window(4),
    "fft.fftfreq": lambda: torch.fft.fftfreq(4),
    "from a list in an operator": lambda: torch.nn.functional.one_hot(torch.tensor([1])),
    "Parameter": lambda: torch.nn.Parameter(torch.ones(2)),
    "Linear": lambda: torch.nn.Linear(2, 2).weight,
    "BatchNorm": lambda: torch.nn.BatchNorm1d(2).running_mean,
    "Stream": lambda: torch.Stream(),
}


@pytest.mark.usefixtures("default")
@pytest.mark.parametrize("make", FACTORIES.values(), ids=FACTORIES.keys())
def test_new_things_are_on_accel(make):
    assert make().device == torch.device("accel", 0)


@pytest.mark.usefixtures("default")
def test_what_has_a_device_keeps_it():
    cpu = torch.ones(2, device="cpu")
    assert (
        cpu.device.type == "cpu" and torch.zeros_like(cpu).device.type == "cpu" and cpu.new_ones(2).device.type == "cpu"
    )
    assert (cpu + 1).device.type == "cpu" and torch.get_default_device().type == "accel"
    assert torch.as_tensor(cpu).is_accel  # a factory: as on every default device


def test_contexts_end():
    with torch.device("accel"):
        with torch.device("cpu"):
            assert torch.ones(1).device.type == "cpu"
        assert torch.ones(1).is_accel
    assert torch.ones(1).device.type == "cpu" and torch.get_default_device().type == "cpu"


@pytest.mark.usefixtures("default")
def test_training_on_the_default_device():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.rand(8, 3), torch.rand(8, 1)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > losses[2] and all(p.grad.is_accel for p in model.parameters())


def test_the_current_device_is_meant(script):
    script(
        """
        import torch
        torch.accel.set_device(1)
        with torch.device("accel"):
            assert torch.ones(1).device == torch.device("accel:1")
        with torch.device("accel:0"):
            assert torch.ones(1).device == torch.device("accel:0")
            assert torch.nn.Linear(2, 2).weight.device == torch.device("accel:0")
        """,
        ACCEL_DEVICES=2,
    )
