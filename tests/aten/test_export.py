"""Captured programs: torch.export, torch.jit.trace and torch.fx, made on the CPU or on accel, run on accel."""

import io

import pytest
import torch
from torch import nn
from torch.export.passes import move_to_device_pass


class Model(nn.Module):
    """A convolution, an embedding, a constant and a branch over a static shape."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.embedding, self.head = nn.Embedding(7, 4), nn.Linear(4, 3)
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, image, token):
        x = self.norm(self.conv(image)).relu().mean((2, 3))
        x = x + self.embedding(token) + torch.arange(4, device=x.device)
        return self.head(x).softmax(1) * self.scale


def inputs(device, batch=2):
    torch.manual_seed(1)
    return torch.rand(batch, 1, 8, 8).to(device), torch.arange(batch).to(device)


@pytest.fixture
def expected():
    with torch.no_grad():
        return Model().eval()(*inputs("cpu"))


def check(program, expected):
    with torch.no_grad():
        actual = program(*inputs("accel"))
    assert actual.is_accel
    torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=0)


def test_exported_on_accel(expected):
    program = torch.export.export(Model().eval().to("accel"), inputs("accel"))
    check(program.module(), expected)
    devices = {
        node.meta["val"].device for node in program.graph.nodes if isinstance(node.meta.get("val"), torch.Tensor)
    }
    assert devices == {torch.device("accel", 0)}


def test_exported_on_the_cpu_and_moved(expected):
    program = move_to_device_pass(torch.export.export(Model().eval(), inputs("cpu")), "accel")
    check(program.module(), expected)


def test_decomposed(expected):
    program = torch.export.export(Model().eval().to("accel"), inputs("accel")).run_decompositions()
    with torch.no_grad():
        torch.testing.assert_close(program.module()(*inputs("accel")).cpu(), expected)


def test_dynamic_shapes():
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(Model().eval().to("accel"), inputs("accel"), dynamic_shapes=({0: batch}, {0: batch}))
    with torch.no_grad():
        expected = Model().eval()(*inputs("cpu", 5))
        torch.testing.assert_close(program.module()(*inputs("accel", 5)).cpu(), expected, rtol=0, atol=0)


def test_saved_and_loaded(expected):
    file = io.BytesIO()
    torch.export.save(torch.export.export(Model().eval().to("accel"), inputs("accel")), file)
    file.seek(0)
    check(torch.export.load(file).module(), expected)


def test_exported_training_program():
    program = torch.export.export(Model().train().to("accel"), inputs("accel"))
    module = program.module()
    module(*inputs("accel")).sum().backward()
    model = Model().train()
    model(*inputs("cpu")).sum().backward()
    theirs = dict(model.named_parameters())
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(parameter.grad.cpu(), theirs[name].grad)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:Converting a tensor")
def test_jit_trace(expected):
    traced = torch.jit.trace(Model().eval().to("accel"), inputs("accel"))
    check(traced, expected)
    file = io.BytesIO()
    torch.jit.save(traced, file)
    for location in ("accel", "cpu"):
        file.seek(0)
        loaded = torch.jit.load(file, map_location=location)
        assert next(loaded.parameters()).device.type == location
    file.seek(0)
    check(torch.jit.load(file), expected)
    check(torch.jit.freeze(traced.eval()), expected)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_jit_script():
    def function(x, n: int):
        for i in range(n):
            if bool(x.sum() > 10):
                return x
            x = x * 2 + i
        return x

    scripted = torch.jit.script(function)
    x = torch.ones(3)
    assert torch.equal(scripted(x.accel(), 5).cpu(), function(x, 5))


def test_symbolic_trace(expected):
    check(torch.fx.symbolic_trace(Model().eval()).to("accel"), expected)


def test_make_fx():
    from torch.fx.experimental.proxy_tensor import make_fx

    def function(x):
        return torch.func.grad(lambda y: (y.sin() * y).sum())(x)

    x = torch.arange(3.0)
    for mode in ("real", "fake", "symbolic"):
        graph = make_fx(function, tracing_mode=mode)(x.accel())
        torch.testing.assert_close(graph(x.accel()).cpu(), function(x))
