"""Training stays right whenever the device runs what was queued: on four streams, and in four threads at once.

Each schedule is a process of its own. It trains once as things are, and once with the rule taken out that a stream waits
for the events it is told to wait for: then the same training must go wrong, or it would prove nothing.
"""

import functools
import json

import pytest

PROGRAM = """
import contextlib, json, threading, torch
from torch import nn
from tests.autograd.forked import forked, racing
from torch_accel.testing import hold_stream

torch.set_num_threads(1)
STEPS = 4


def planted(rule):
    return contextlib.nullcontext() if rule else racing("stream_wait")


def same(mine, theirs):
    return all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


class Branches(nn.Module):
    # Four branches, each on a stream of its own; all use the stem's result and one shared weight.
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.shared = nn.Linear(8, 16), nn.Linear(16, 16)
        self.branches = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4)) for _ in range(4))

    def forward(self, x, streams):
        x = self.stem(x).relu()
        caller, parts = torch.accel.current_stream(), []
        for stream, branch in zip(streams, self.branches):
            with forked(stream) if x.is_accel else contextlib.nullcontext():
                parts.append(branch(self.shared(x).sin()))
            if x.is_accel:  # each is freed while the other stream may still have to read it
                x.record_stream(stream)
                parts[-1].record_stream(caller)
        return torch.cat(parts, 1)


def branches(device, streams, rule=True):
    net = Branches().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    torch.manual_seed(1)
    x, target = torch.randn(6, 8).to(device), torch.randn(6, 16).to(device)
    for step in range(STEPS):
        for stream in streams if device == "accel" else ():  # the gradients that are freed now are of these streams
            stream.wait_stream(torch.accel.current_stream())
        optimizer.zero_grad()
        loss = (net(x, streams) - target).square().mean()
        held = streams[step % 4]
        with hold_stream(held) if device == "accel" else contextlib.nullcontext():
            with planted(rule):
                loss.backward()
            optimizer.step()
            if not rule:  # all others get ahead of the held stream
                for stream in (torch.accel.current_stream(), *streams):
                    if stream != held:
                        stream.synchronize()
        torch.accel.synchronize() if not rule else None
    return [p.detach().cpu() for p in net.parameters()]


def model(device, number, side=None, barrier=None, rule=True):
    generator = torch.Generator().manual_seed(number)  # torch's own is shared by the threads
    draw = lambda *sizes: torch.randn(*sizes, generator=generator)
    net = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(draw(p.shape))
    net = net.to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    x, target = draw(6, 8).to(device), draw(6, 4).to(device)
    for step in range(STEPS):
        if side:  # the gradients that are freed now are of this stream
            side.wait_stream(torch.accel.current_stream())
        optimizer.zero_grad()
        with forked(side) if side else contextlib.nullcontext():
            loss = (net(x) - target).square().mean()
        barrier.wait() if side else None  # all four at once
        with hold_stream(side) if side else contextlib.nullcontext():
            loss.backward()
            optimizer.step()
            if side and not rule:
                torch.accel.current_stream().synchronize()
        side.synchronize() if side and not rule else None
    return [p.detach().cpu() for p in net.parameters()]


def threads(rule):
    # A thread's current stream is its own, and its model runs on another one.
    barrier, results = threading.Barrier(4), [None] * 4

    def work(i, side, main):
        try:
            with torch.accel.stream(main):
                results[i] = model("accel", i, side, barrier, rule)
        except BaseException:
            barrier.abort()
            raise

    streams = [torch.accel.Stream() for _ in range(8)]
    assert len(set(streams)) == 8
    with planted(rule):
        workers = [threading.Thread(target=work, args=(i, *streams[2 * i : 2 * i + 2])) for i in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    torch.accel.synchronize()
    return [same(result, model("cpu", i)) for i, result in enumerate(results)]


streams = [torch.accel.Stream() for _ in range(4)]
assert len(set(streams)) == 4
expected = branches("cpu", streams)
right = {}
for rule in (True, False):
    right[f"four streams, rule {rule}"] = same(branches("accel", streams, rule), expected)
    right[f"four threads, rule {rule}"] = threads(rule)
print(json.dumps(right))
"""


@pytest.fixture
def outcome(script):
    """What went right under a seed and delays."""
    return functools.partial(_outcome, script)


_outcomes: dict[int, dict[str, object]] = {}


def _outcome(script, seed):
    if seed not in _outcomes:
        _outcomes[seed] = json.loads(script(PROGRAM, ACCEL_SCHEDULE_SEED=seed, ACCEL_DELAY_US=100).stdout)
    return _outcomes[seed]


@pytest.mark.parametrize("rule", [True, False], ids=["as it is", "taken out"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_backward_on_four_streams(outcome, seed, rule):
    assert outcome(seed)[f"four streams, rule {rule}"] is rule


@pytest.mark.parametrize("rule", [True, False], ids=["as it is", "taken out"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_four_threads_train_four_models(outcome, seed, rule):
    assert outcome(seed)[f"four threads, rule {rule}"] == [rule] * 4
