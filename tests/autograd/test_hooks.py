"""Hooks of every kind: when they run, in which order, on which stream, and what their results do."""

import contextlib
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge, register_multi_grad_hook

from tests.autograd.forked import forked
from torch_accel.testing import hold_stream

STREAMS = pytest.mark.parametrize("where", ["main", "side"])


class Log:
    """What hooks saw: a name and the tensors, looked at afterwards so that nothing waits meanwhile."""

    def __init__(self):
        self.entries: list[tuple[str, tuple[Any, ...]]] = []
        self.streams: list[torch.Stream] = []

    def __call__(self, name, *tensors):
        self.entries.append((name, tuple(None if t is None else t.detach() * 1 for t in tensors)))
        if any(t is not None and t.is_accel for t in tensors):
            self.streams.append(torch.accel.current_stream())

    def read(self):
        return [(name, [None if t is None else t.tolist() for t in tensors]) for name, tensors in self.entries]


def run(program, device, where="main"):
    """The log and the result of `program(device, log)`; on accel all of it is queued behind a held stream."""
    log = Log()
    stream = torch.accel.Stream() if where == "side" else torch.accel.current_stream()
    with forked(stream) if where == "side" else contextlib.nullcontext():
        torch.accel.synchronize()
        with hold_stream(stream) if device == "accel" else contextlib.nullcontext():
            result = program(device, log)
    assert set(log.streams) <= {stream}
    return log.read(), result.tolist()


def same_on_both(program, where, names):
    """`program` logs the names in this order, with the CPU's values."""
    mine, theirs = (run(program, device, where) for device in ("accel", "cpu"))
    assert mine == theirs
    assert [name for name, _ in mine[0]] == names
    return mine


def leaf(device, n=3):
    return torch.arange(1.0, n + 1, device=device).requires_grad_()


@STREAMS
def test_hooks_of_a_tensor(where, queued):
    def program(device, log):
        x = leaf(device)
        y = x * 2
        y.register_hook(lambda g: log("y", g) or g * 10)
        y.retain_grad()
        y.register_hook(lambda g: log("y again", g))
        x.register_hook(lambda g: log("x", g) or g + 1)
        x.register_post_accumulate_grad_hook(lambda p: log("accumulated", p, p.grad))
        (y * y).sum().backward()
        log("retained", y.grad)
        return x.grad

    entries, grad = same_on_both(program, where, ["y", "y again", "x", "accumulated", "retained"])
    assert grad == [81, 161, 241]  # 2y · 10 · 2 + 1
    # retain_grad comes last, wherever it was registered.
    assert entries[-1] == ("retained", [[40, 80, 120]])


@STREAMS
def test_hooks_of_a_node(where, queued):
    def program(device, log):
        x = leaf(device)
        y = x * 2
        node = y.grad_fn
        node.register_prehook(lambda grads: log("before", *grads) or tuple(g * 3 for g in grads))
        node.register_hook(lambda inputs, outputs: log("after", *inputs, *outputs) or (inputs[0] + 1, inputs[1]))
        y.register_hook(lambda g: log("tensor", g))
        z = y.sum()
        z.grad_fn.register_hook(lambda inputs, outputs: log("sum", *inputs, *outputs))
        z.backward()
        return x.grad

    _, grad = same_on_both(program, where, ["sum", "tensor", "before", "after"])
    assert grad == [7, 7, 7]


@STREAMS
def test_hooks_of_the_accumulating_node(where, queued):
    def program(device, log):
        x = leaf(device)
        node = get_gradient_edge(x).node
        node.register_prehook(lambda grads: log("before", *grads) or (grads[0] * 2,))
        node.register_hook(lambda inputs, outputs: log("after", x.grad))
        x.register_post_accumulate_grad_hook(lambda p: log("post", p.grad))
        (x * 5).sum().backward()
        return x.grad

    _, grad = same_on_both(program, where, ["before", "post", "after"])
    assert grad == [10, 10, 10]


@pytest.mark.parametrize("mode", ["all", "any"])
@STREAMS
def test_hooks_of_several_gradients(where, mode, queued):
    def program(device, log):
        a, b, unused = leaf(device), leaf(device), leaf(device)
        c, d = a * b, a + b
        tensors = (a, b, c, d, unused)
        if mode == "all":
            handle = register_multi_grad_hook(tensors, lambda grads: log("all", *grads), mode=mode)
        else:
            handle = register_multi_grad_hook(tensors, lambda grad: log("any", grad), mode=mode)
        (c * 2).sum().backward(retain_graph=True)
        ((c * 3) + d).sum().backward(retain_graph=True)
        handle.remove()
        (c + d).sum().backward()
        return a.grad

    entries, grad = same_on_both(program, where, [mode] * 2)
    if mode == "all":
        # Without d in the graph its gradient is None, and so is the unused leaf's.
        twos = [2.0, 4.0, 6.0]
        assert entries[0][1] == [twos, twos, [2, 2, 2], None, None]
        assert entries[1][1] == [[4, 7, 10], [4, 7, 10], [3, 3, 3], [1, 1, 1], None]
    else:
        assert entries[0][1] == [[2, 2, 2]]
    assert grad == [2 + 4 + 2, 4 + 7 + 3, 6 + 10 + 4]


@STREAMS
def test_hooks_of_a_module(where, queued):
    def program(device, log):
        inner, outer = nn.Linear(3, 3, bias=False), nn.Linear(3, 1, bias=False)
        with torch.no_grad():
            inner.weight.copy_(torch.eye(3) * 2)
            outer.weight.fill_(1)
        net = nn.Sequential(inner, outer).to(device)
        for name, module in (("inner", net[0]), ("outer", net[1])):
            module.register_forward_pre_hook(lambda m, args, n=name: log(f"{n} forward pre", *args) or (args[0] + 1,))
            module.register_forward_hook(lambda m, args, out, n=name: log(f"{n} forward", out) or out * 3)
            module.register_full_backward_pre_hook(
                lambda m, grads, n=name: log(f"{n} backward pre", *grads) or (grads[0] * 2,)
            )
            module.register_full_backward_hook(
                lambda m, inputs, outputs, n=name: log(f"{n} backward", *inputs, *outputs) or (inputs[0] + 1,)
            )
        x = leaf(device)
        net(x).sum().backward()
        return x.grad

    forward = ["inner forward pre", "inner forward", "outer forward pre", "outer forward"]
    backward = ["outer backward pre", "outer backward", "inner backward pre", "inner backward"]
    entries, grad = same_on_both(program, where, forward + backward)
    assert entries[4][1] == [[1]] and entries[5][1] == [[6, 6, 6], [2]]
    # outer: 1 · 2 (pre) · 3 (forward hook) + 1; inner: 7 · 2 · 3 · 2 (its weight) + 1
    assert grad == [85, 85, 85]


def test_hooks_of_all_modules(queued):
    seen = []
    handles = [
        nn.modules.module.register_module_forward_pre_hook(lambda m, args: seen.append("forward pre")),
        nn.modules.module.register_module_forward_hook(lambda m, args, out: seen.append("forward")),
        nn.modules.module.register_module_full_backward_pre_hook(lambda m, g: seen.append("backward pre")),
        nn.modules.module.register_module_full_backward_hook(lambda m, i, o: seen.append("backward")),
    ]
    try:
        net = nn.Linear(3, 2).to("accel")
        with hold_stream():
            net(leaf("accel")).sum().backward()
    finally:
        for handle in handles:
            handle.remove()
    assert seen == ["forward pre", "forward", "backward pre", "backward"]


def test_an_optimizer_step_in_the_backward(queued):
    # The recipe of register_post_accumulate_grad_hook: no gradient outlives its use.
    def train(device):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).to(device)
        optimizers = {p: torch.optim.SGD([p], lr=0.1, momentum=0.9) for p in net.parameters()}

        def step(p):
            optimizers[p].step()
            optimizers[p].zero_grad()

        for p in net.parameters():
            p.register_post_accumulate_grad_hook(step)
        x = torch.arange(6.0, device=device).reshape(2, 3)
        with hold_stream() if device == "accel" else contextlib.nullcontext():
            for _ in range(3):
                net(x).square().sum().backward()
        assert all(p.grad is None for p in net.parameters())
        return [p.detach().cpu() for p in net.parameters()]

    for mine, theirs in zip(train("accel"), train("cpu")):
        assert torch.equal(mine, theirs)


def test_a_removed_hook_does_not_run():
    x = leaf("accel")
    handles = [x.register_hook(lambda g: g * 100), x.register_post_accumulate_grad_hook(lambda p: p.grad.zero_())]
    y = x * 2
    handles += [y.grad_fn.register_hook(lambda i, o: 1 / 0), y.grad_fn.register_prehook(lambda o: 1 / 0)]
    for handle in handles:
        handle.remove()
    y.sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_an_error_of_a_hook_rises_from_backward():
    x = leaf("accel")
    handle = x.register_hook(lambda g: {}["no such key"])
    with pytest.raises(KeyError, match="no such key"):
        (x * 2).sum().backward()
    handle.remove()
    for bad, text in ((lambda g: g.cpu(), "has changed the type|device"), (lambda g: g[:2], "changed the size")):
        handle = x.register_hook(bad)
        with pytest.raises(RuntimeError, match=text):
            (x * 2).sum().backward()
        handle.remove()
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_a_hook_may_run_a_backward_of_its_own():
    x, other = leaf("accel"), leaf("accel")

    def hook(g):
        with torch.enable_grad():
            (other * g).sum().backward()

    x.register_hook(hook)
    (x * 4).sum().backward()
    assert other.grad.tolist() == x.grad.tolist() == [4, 4, 4]


def test_under_delays(script):
    # When and where the device gets there changes neither order nor values; save_on_cpu's copies come in their turn.
    script(
        """
        import torch
        from torch.autograd.graph import save_on_cpu
        from tests.autograd.test_hooks import leaf, run

        def program(device, log):
            x = leaf(device)
            with save_on_cpu(pin_memory=True, device_type="accel"):
                y = x * 2
                z = y * y
            y.register_hook(lambda g: log("y", g) or g.mul_(10))
            x.register_post_accumulate_grad_hook(lambda p: log("accumulated", p.grad))
            y.grad_fn.register_prehook(lambda grads: log("before", *grads) or (grads[0] * 3,))
            z.sum().backward()
            del y, z
            torch.full((3,), -1.0, pin_memory=True)  # over what was saved, if that is free already
            return x.grad

        for where in ("main", "side") * 5:
            entries, grad = run(program, "accel", where)
            assert [name for name, _ in entries] == ["y", "before", "accumulated"]
            assert entries[0][1] == [[4, 8, 12]] and entries[1][1] == [[40, 80, 120]]
            assert entries[2][1] == [[240, 480, 720]] and grad == [240, 480, 720]
        """,
        ACCEL_DELAY_US=200,
        ACCEL_SCHEDULE_SEED=1,
    )
