"""Modules traced and scripted: torch.fx, torch.jit.trace and torch.jit.script of modules on accel."""

import io

import pytest
import torch
from torch import nn

from tests.modules.against_cpu import check_equal, check_step, ramp


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)
        self.head = nn.Linear(12, 4)
        self.register_buffer("offset", torch.arange(4.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.conv(x))).flatten(1)
        z = self.head(y) + self.offset
        return z * torch.ones(4, device=x.device) + torch.arange(4, device=x.device)


class Branches(nn.Module):
    """What only a script keeps: a loop, a branch, a list and an optional."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])

    def forward(self, x: torch.Tensor, times: int, scale: float | None = None) -> tuple[torch.Tensor, list[str]]:
        devices: list[str] = []
        for layer in self.layers:
            for _ in range(times):
                x = torch.tanh(layer(x))
                devices.append(x.device.type)
        if scale is not None:
            x = x * scale
        if bool(x.sum() > 0):
            x = -x
        return x, devices


X = torch.linspace(-1, 1, 64).view(2, 2, 4, 4)


def net(device="cpu"):
    torch.manual_seed(0)
    return Net().to(device)


@pytest.mark.filterwarnings("ignore:`?torch.jit")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
class TestTracedAndScripted:
    WAYS = {
        "fx": lambda m, x: torch.fx.symbolic_trace(m),
        "trace": lambda m, x: torch.jit.trace(m, x, check_trace=False),
        "trace, evaluated": lambda m, x: torch.jit.trace(m.eval(), x),
        "script": lambda m, x: torch.jit.script(m),
    }

    @pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
    def test_a_module_computes_the_same(self, way):
        mine, theirs = net("accel"), net()
        made = way(mine, X.to("accel"))
        mine.load_state_dict(theirs.state_dict())  # a trace has run, and moved the statistics
        theirs.train(mine.training)
        for _ in range(3):  # the profiling executor specialises on the second run
            out, expected = made(X.to("accel")), theirs(X)
            out.backward(ramp(out))
            expected.backward(ramp(expected))
        check_equal(
            [out, mine, [p.grad for p in made.parameters()]], [expected, theirs, [p.grad for p in theirs.parameters()]]
        )

    @pytest.mark.parametrize("way", ["fx", "script"])
    def test_what_was_made_on_the_cpu_moves(self, way):
        made = self.WAYS[way](net(), X)
        expected = net()(X)
        check_equal(made.to("accel")(X.to("accel")), expected)
        assert torch.equal(net()(X), expected)

    @pytest.mark.parametrize("map_location", [None, "cpu", "accel"])
    @pytest.mark.parametrize("source", ["cpu", "accel"])
    def test_scripts_are_saved_and_loaded(self, source, map_location):
        buffer = io.BytesIO()
        torch.jit.save(torch.jit.script(net(source).eval()), buffer)
        buffer.seek(0)
        loaded = torch.jit.load(buffer, map_location=map_location)
        where = map_location or source
        assert loaded.offset.device.type == where and loaded.conv.weight.device.type == where
        assert torch.equal(loaded(X.to(where)).cpu(), net().eval()(X))

    def test_scripts_keep_control_flow(self):
        torch.manual_seed(0)
        module = Branches()
        script = torch.jit.script(module)
        for arguments in ((2,), (1, 3.0)):
            x = torch.linspace(-1, 1, 6).view(2, 3)
            expected, _ = module.cpu()(x, *arguments)
            out, devices = script.to("accel")(x.to("accel"), *arguments)
            check_equal(out, expected)
            assert devices == ["accel"] * 2 * arguments[0]

    def test_frozen_and_optimised_for_inference(self):
        frozen = torch.jit.freeze(torch.jit.script(net("accel").eval()))
        expected = net().eval()(X)
        for _ in range(3):
            check_equal(frozen(X.to("accel")), expected, rtol=1e-5, atol=1e-5)  # convolution and norm become one


def test_fx_sees_the_graph_and_rewrites_it():
    traced = torch.fx.symbolic_trace(net("accel").eval())
    for node in traced.graph.nodes:
        if node.op == "call_function" and node.target is torch.relu:
            node.target = torch.sigmoid
    traced.recompile()
    m = net().eval()
    expected = m.head(torch.sigmoid(m.norm(m.conv(X))).flatten(1)) + m.offset + torch.arange(4)
    check_equal(traced(X.to("accel")), expected)


def test_fx_interprets_shapes_and_devices():
    traced = torch.fx.symbolic_trace(net("accel"))
    torch.fx.passes.shape_prop.ShapeProp(traced).propagate(X.to("accel"))
    metas = {n.name: n.meta["tensor_meta"].shape for n in traced.graph.nodes if "tensor_meta" in n.meta}
    assert metas["conv"] == (2, 3, 2, 2) and metas["head"] == (2, 4)


def test_hooks_run_in_torchs_order():
    records = []
    for device in ("accel", "cpu"):
        seen = []

        def note(name, seen=seen):
            return lambda *_: seen.append(name)

        m = net(device)
        for layer in (m.conv, m.head):
            layer.register_forward_pre_hook(note("before"))
            layer.register_forward_hook(note("after"))
            layer.register_full_backward_pre_hook(note("backward before"))
            layer.register_full_backward_hook(note("backward after"))
        m.head.register_forward_hook(lambda module, inputs, output: output * 2)
        m.head.register_forward_pre_hook(lambda module, args, kwargs: (args, kwargs), with_kwargs=True)
        handle = m.norm.register_forward_hook(note("removed"))
        handle.remove()
        out = m(X.to(device).requires_grad_())
        out.backward(ramp(out))
        records.append((seen, out, [p.grad for p in m.parameters()]))
    assert records[0][0] == records[1][0] and len(records[0][0]) == 8
    check_equal(records[0][1:], records[1][1:])


def test_global_hooks_see_accel():
    seen = set()
    handle = nn.modules.module.register_module_forward_hook(lambda m, i, o: seen.add((type(m).__name__, o.device.type)))
    try:
        check_step(net(), X)
    finally:
        handle.remove()
    assert ("Conv2d", "accel") in seen and ("Conv2d", "cpu") in seen
