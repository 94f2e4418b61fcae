"""Gradients across two devices and the host: each device has an engine thread, its streams and its memory.

The parts run in this order in one process, with two devices and a random schedule.
"""

import json

import pytest

COMMON = """
import contextlib, copy, json, threading, traceback, torch
from torch import nn
from tests.autograd.forked import racing
from torch_accel.testing import hold_stream

a, b = torch.device("accel:0"), torch.device("accel:1")

def settle():
    for device in (a, b):
        torch.accel.synchronize(device)

errors = {}

def part(name, source):
    try:
        exec(compile(source, name, "exec"), dict(globals()))
        errors[name] = None
    except Exception:
        errors[name] = traceback.format_exc()
    settle()
    torch.accel.set_device(0)
"""

THREADS = """
from pathlib import Path

def engines():
    names = [Path(task, "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    return sorted(name for name in names if name.startswith("pt_autograd"))

seen = []

class Note(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        name = Path(f"/proc/self/task/{threading.get_native_id()}/comm").read_text().strip()
        seen.append((name, torch.accel.current_device(), torch.accel.current_stream().device))
        return grad

assert engines() == []
x = torch.ones(3, device=a, requires_grad=True)
Note.apply(Note.apply(Note.apply(x).to(b)).to(a)).sum().backward()
# A thread for each device, whichever the backward needs.
assert engines() == ["pt_autograd_0", "pt_autograd_1"], engines()
assert seen == [("pt_autograd_0", 0, a), ("pt_autograd_1", 1, b), ("pt_autograd_0", 0, a)], seen
seen.clear()
y = torch.ones(3, requires_grad=True)
Note.apply(Note.apply(y).to(b)).sum().backward()
# The host's part runs on the thread that called.
assert seen[0] == ("pt_autograd_1", 1, b) and seen[1][0] not in engines(), seen
assert torch.accel.current_device() == 0
"""

GRADIENTS = """
def gradients(first, second):
    x = torch.arange(1.0, 4).to(first).requires_grad_()
    w = torch.full((3,), 2.0).to(second).requires_grad_()
    h = torch.ones(3, requires_grad=True)
    y = (x * 3).to(second) * w
    z = y.to(first) * x + h.to(first)
    (z.cpu() * h).sum().backward()
    return x.grad, w.grad, h.grad

for first, second, host in zip(gradients(a, b), gradients(b, a), gradients("cpu", "cpu")):
    assert torch.equal(first.cpu(), host) and torch.equal(second.cpu(), host)
x, w, h = gradients(a, b)
assert (x.device, w.device, h.device.type) == (a, b, "cpu")
v = torch.arange(1.0, 4)
assert torch.equal(x.cpu(), 12 * v) and torch.equal(w.cpu(), 3 * v * v) and torch.equal(h, 6 * v * v + 2)

# A gradient of a gradient through both devices.
x = torch.arange(1.0, 4).double().to(a).requires_grad_()
assert torch.autograd.gradcheck(lambda t: (t.to(b).exp() * 2).to(a) * t, (x,))
assert torch.autograd.gradgradcheck(lambda t: (t.to(b).exp() * 2).to(a) * t, (x,))

# A sum of gradients of one leaf that come from both devices.
x = torch.ones(3, device=a, requires_grad=True)
loss = (x.to(b) * 2).sum().to(a) + (x * 5).sum() + (x.to(b) * 4).sum().to(a)
loss.backward()
assert x.grad.device == a and x.grad.tolist() == [11, 11, 11]

try:
    (x.to(b) * 1).backward(torch.ones(3, device=a))
    raise SystemExit("accepted")
except RuntimeError as error:
    assert "expected device accel:1 but got accel:0" in str(error), error
"""

ORDER = """
# The loss is on b, whose stream is held: the leaf's device waits for it, and the caller's stream of a for the leaf's.
def run(rule, value):
    side, main = torch.accel.Stream(device=b), torch.accel.current_stream(a)
    x = torch.ones(1000, device=a, requires_grad=True)
    x.grad = torch.zeros_like(x)
    settle()
    with torch.accel.stream(side):
        y = x.to(b) * value
        grad = torch.ones_like(y)
    settle()
    with hold_stream(side):
        with contextlib.nullcontext() if rule else racing("stream_wait"):
            y.backward(grad)
        used = x.grad * 1
        if rule:
            assert not main.query()
        else:
            main.synchronize()
            torch.accel.current_stream(b).synchronize()
    settle()
    # Both: without the rule, what is late may be written into the memory of the other by chance.
    return all(torch.equal(t.cpu(), torch.full((1000,), float(value))) for t in (x.grad, used))

assert [run(True, 7), run(False, 8)] == [True, False]
"""

LIFE = """
# The gradient is made on b and copied to a; either device may be late. b's memory stays until the copy has read it.
def run(held, value):
    x = torch.ones(1000, device=a, requires_grad=True)
    y = x.to(b)
    z = y * value
    grad = torch.ones_like(z)
    addresses = []
    y.register_hook(lambda g: addresses.append(g.data_ptr()))
    settle()
    with hold_stream(torch.accel.current_stream(held)):
        z.backward(grad)
        others = [torch.full((1000,), -1.0, device=b) for _ in range(50)]
    settle()
    return torch.equal(x.grad.cpu(), torch.full((1000,), float(value)))

assert [run(a, 7), run(b, 8)] == [True, True]
"""

PARALLEL = """
# What DataParallel does: replicas, a thread for each, gradients summed by the broadcast's backward.
from torch.func import functional_call

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.LayerNorm(16), nn.Linear(16, 4))

torch.manual_seed(1)
X, T = torch.randn(8, 8), torch.randn(8, 4)

def host():
    net = build()
    for x, t in zip(X.chunk(2), T.chunk(2)):
        (net(x) - t).square().sum().backward()
    return net

def parallel(devices):
    net = build().to(devices[0])
    copies = [{name: p.to(device) for name, p in net.named_parameters()} for device in devices]
    replicas = [copy.deepcopy(net) for _ in devices]  # functional_call writes to the module for a while
    results = [None] * len(devices)

    def work(i, x):
        with torch.accel.device(devices[i]):
            assert torch.accel.current_device() == devices[i].index
            results[i] = functional_call(replicas[i], copies[i], (x.to(devices[i]),))

    threads = [threading.Thread(target=work, args=(i, x)) for i, x in enumerate(X.chunk(len(devices)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    output = torch.cat([r.to(devices[0]) for r in results])
    (output - T.to(devices[0])).square().sum().backward()
    return net

expected = host()
for _ in range(5):
    actual = parallel([a, b])
    for mine, theirs in zip(actual.parameters(), expected.parameters()):
        assert mine.grad.device == a
        torch.testing.assert_close(mine.grad.cpu(), theirs.grad)

# A backward for each device in a thread of its own, each with its own current device.
def train(device, results):
    torch.accel.set_device(device)
    net = build().to("accel")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for _ in range(5):
        optimizer.zero_grad()
        (net(X.to("accel")) - T.to("accel")).square().mean().backward()
        assert torch.accel.current_device() == device.index
        optimizer.step()
    results[device] = [p.detach() for p in net.parameters()]

results = {}
built = threading.Lock()
build_alone = build

def build():
    with built:
        return build_alone()

threads = [threading.Thread(target=train, args=(device, results)) for device in (a, b)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for first, second in zip(results[a], results[b]):
    assert first.device == a and second.device == b and torch.equal(first.cpu(), second.cpu())
"""

MODULE = """
# torch's own helper of DataParallel, with modules placed by hand.
from torch.nn.parallel import parallel_apply

nets = [nn.Linear(3, 3, bias=False).to(device) for device in (a, b)]
with torch.no_grad():
    for net in nets:
        net.weight.copy_(torch.eye(3) * 2)
x = torch.arange(3.0, device=a, requires_grad=True)
y, z = parallel_apply(nets, [x, x.to(b)], devices=[0, 1])
assert (y.device, z.device) == (a, b)
(y.sum() + z.to(a).sum()).backward()
assert x.grad.tolist() == [4, 4, 4] and nets[1].weight.grad.device == b
assert torch.equal(nets[0].weight.grad.cpu(), nets[1].weight.grad.cpu())
"""

CHECKPOINT = """
from torch.utils.checkpoint import checkpoint

def noisy(a, b):
    # On two devices, one after the other: torch's checkpoint recomputes in the engine's threads and takes no two at once.
    y = torch.dropout(a, 0.5, True) * 3
    return y, torch.dropout(b * y.to(b.device), 0.5, True) * 3

for use_reentrant in (False, True):
    for preserve in (True, False):
        torch.manual_seed(5)
        torch.accel.set_device(0)
        a = torch.ones(1000, device="accel:0", requires_grad=True)
        b = torch.ones(1000, device="accel:1", requires_grad=True)
        y, z = checkpoint(noisy, a, b, use_reentrant=use_reentrant, preserve_rng_state=preserve)
        states = torch.accel.get_rng_state_all()
        z.sum().backward()
        # z = b · y · mask, with b = 1: wherever the masks are the same, z's gradients are z.
        assert torch.equal(b.grad, z.detach()) == torch.equal(a.grad.cpu(), z.detach().cpu()) == preserve
        same = [torch.equal(s, t) for s, t in zip(states, torch.accel.get_rng_state_all())]
        assert same == [preserve] * 2, same
        assert torch.accel.current_device() == 0
        # Of a device that is not the current one alone.
        y = checkpoint(lambda t: torch.dropout(t, 0.5, True) * 3, b, use_reentrant=use_reentrant)
        b.grad = None
        y.sum().backward()
        assert b.grad.device.index == 1 and torch.equal(b.grad, y.detach())
"""

PARTS = {
    "each device has an engine thread": THREADS,  # first: before any backward
    "gradients across devices": GRADIENTS,
    "a leaf waits for the other device's stream": ORDER,
    "a gradient lives until the other device has copied it": LIFE,
    "replicas on two devices": PARALLEL,
    "parallel_apply": MODULE,
    "a checkpoint restores both generators": CHECKPOINT,
}
errors: dict[str, str] = {}


@pytest.mark.parametrize("part", PARTS)
def test_with_two_devices(script, part):
    if not errors:
        calls = "".join(f"part({name!r}, {source!r})\n" for name, source in PARTS.items())
        done = script(COMMON + calls + "print(json.dumps(errors))", ACCEL_DEVICES=2, ACCEL_SCHEDULE_SEED=1)
        errors.update(json.loads(done.stdout))
    assert errors[part] is None, errors[part]
