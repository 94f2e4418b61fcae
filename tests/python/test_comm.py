"""torch.accel.comm and torch.nn.DataParallel: several devices, queued copies, the numbers of one device."""

import pytest
import torch

from torch_accel import _parallel

PROLOGUE = """
import warnings
import torch
from torch import nn
from torch.accel import comm
from tests.autograd.forked import racing
from torch.accel.testing import hold_stream

a, b = torch.device("accel:0"), torch.device("accel:1")

def check(condition):
    if not condition:
        raise AssertionError

def same(x, y):
    return x.shape == y.shape and torch.equal(x.cpu(), y.cpu())
"""


@pytest.fixture
def run(two_devices):
    return lambda source: two_devices(PROLOGUE + source)


def test_broadcast(run):
    run("""
x = torch.arange(6.0, device=a).reshape(2, 3).t()
copies = comm.broadcast(x, [0, 1])
check(copies[0] is x and copies[1].device == b and same(copies[1], x))
check([t.device for t in comm.broadcast(torch.ones(2), ["accel:1", 0])] == [b, a])
out = [torch.zeros(3, 2, device=a), torch.zeros(3, 2, device=b)]
comm.broadcast(x, out=out)
check(all(same(t, x) for t in out))
""")


def test_broadcast_coalesced(run):
    run("""
tensors = [torch.randn(5, 2, device=a), torch.arange(3, device=a), torch.randn(()).to(a), torch.randn(0, 4, device=a),
           torch.randn(300, device=a), torch.randn(4, 6, device=a).t(), torch.eye(3, device=a).to_sparse(),
           torch.randn(2, device=a, dtype=torch.float64)]
for size in (1, 100, 10 << 20):
    home, far = comm.broadcast_coalesced(tensors, [0, 1], size)
    check(all(x is y for x, y in zip(home, tensors)))
    check(all(y.device == b and y.dtype == x.dtype and y.layout == x.layout for x, y in zip(tensors, far)))
    check(all(same(x.to_dense(), y.to_dense()) for x, y in zip(tensors, far)))
# One buffer, but each tensor has a version of its own.
far[0].add_(1)
check(far[0]._version == 1 and far[4]._version == 0)
small = comm.broadcast_coalesced(tensors[:1] + tensors[4:5], [0, 1])[1]
check(small[0].untyped_storage().data_ptr() == small[1].untyped_storage().data_ptr())
try:
    comm.broadcast_coalesced([torch.ones(2)], [0, 1])
except RuntimeError as error:
    check("devices[0]" in str(error))
else:
    raise AssertionError
""")


def test_reduce_add(run):
    run("""
x, y = torch.randn(4, 3), torch.randn(4, 3)
check(same(comm.reduce_add([x.to(a), y.to(b)], 1), y + x) and comm.reduce_add([x.to(a), y.to(b)], 1).device == b)
groups = [[x.to(a), torch.ones(2, device=a)], [y.to(b), torch.full((2,), 2.0, device=b)]]
first, second = comm.reduce_add_coalesced(groups, 0)
check(same(first, x + y) and second.tolist() == [3, 3] and first.device == second.device == a)
""")


def test_scatter_and_gather(run):
    run("""
for x in (torch.arange(21.0).reshape(7, 3), torch.arange(21.0, device=a).reshape(3, 7).t()):
    one, two = comm.scatter(x, [0, 1])
    check(one.device == a and two.device == b and same(one, x[:4]) and same(two, x[4:]))
    one, two = comm.scatter(x, [1, 0], [2, 5])
    check(one.device == b and same(one, x[:2]) and same(two, x[2:]))
    one, two = comm.scatter(x, [0, 1], [1, 2], -1)
    check(same(one, x[:, :1]) and same(two, x[:, 1:]))
    out = [torch.zeros(1, 3, device=b), torch.zeros(6, 3, device=a)]
    comm.scatter(x, out=out)
    check(same(out[0], x[:1]) and same(out[1], x[1:]))
    for destination, device in ((1, b), ("accel:0", a), ("cpu", torch.device("cpu")), (None, a)):
        back = comm.gather(out, 0, destination)
        check(back.device == device and same(back, x))
    target = torch.zeros(7, 3, device=b)
    check(comm.gather(out, out=target) is target and same(target, x))
check(len(comm.scatter(torch.ones(1, 2), [0, 1])) == 1)  # as chunk: fewer than asked for
images = [torch.randn(2, 3, 4, 5, device=d).to(memory_format=torch.channels_last) for d in (a, b)]
check(comm.gather(images).is_contiguous(memory_format=torch.channels_last))
""")


def test_a_scatter_runs_on_the_streams_it_is_given(run):
    run("""
streams = [torch.accel.Stream(0), torch.Stream(device=b)]
x = torch.arange(1000.0).pin_memory()
torch.accel.synchronize(b)  # what the test before left there
with hold_stream(streams[0]), hold_stream(streams[1]):
    one, two = comm.scatter(x, [0, 1], None, 0, streams)
    check(not streams[0].query() and not streams[1].query() and torch.accel.default_stream(1).query())
for stream in streams:
    stream.synchronize()
check(same(one, x[:500]) and same(two, x[500:]))
""")


def test_copies_are_ordered_by_the_streams_of_both_devices(run):
    run("""
x, y = torch.zeros(1000, device=a), torch.zeros(1000, device=b)
torch.accel.synchronize(a), torch.accel.synchronize(b)
with hold_stream(torch.accel.current_stream(a)):
    x.fill_(3)
    far = comm.broadcast(x, [0, 1])[1]
    joined = comm.gather([x, y], 0, 1)
    check(not torch.accel.current_stream(b).query())
    x.fill_(4)  # after the copies
check(same(far, torch.full((1000,), 3.0)))
check(same(joined, torch.cat([torch.full((1000,), 3.0), torch.zeros(1000)])))
""")


def test_without_the_waits_between_streams_they_are_not(run):
    """The wait that would hang above ends here, and what it waited for is not there."""
    run("""
x, y = torch.full((1000,), 3.0, device=a), torch.zeros(1000, device=b)
torch.accel.synchronize(a), torch.accel.synchronize(b)
with racing("stream_wait"), hold_stream(torch.accel.current_stream(a)):
    joined = comm.gather([x, y], 0, out=torch.zeros(2000, device=b))
    torch.accel.current_stream(b).synchronize()
    check(joined.sum().item() == 0)
torch.accel.synchronize(a)
check(joined.sum().item() == 3000)
""")


def test_errors(run):
    run("""
x = torch.ones(4, device=a)
for call in (
    lambda: comm.scatter(x, []),
    lambda: comm.scatter(x, [0, 1], [1, 2, 1]),
    lambda: comm.scatter(x, [0, 1], None, 0, [None]),
    lambda: comm.scatter(x, [0], None, 0, [torch.accel.Stream(1)]),
    lambda: comm.scatter(x, out=[torch.ones(4)]),
    lambda: comm.scatter(x, out=[torch.ones(3, device=b)]),
    lambda: comm.scatter(x, out=[]),
    lambda: comm.gather([]),
    lambda: comm.gather([x, torch.ones(4)]),
    lambda: comm.gather([x, torch.ones(4, 2, device=b)]),
    lambda: comm.gather([x, x], out=torch.ones(4, device=b)),
    lambda: comm.broadcast(x, out=[torch.ones(3, device=b)]),
    lambda: comm.broadcast(x, [2]),
):
    try:
        call()
    except RuntimeError as error:
        check(len(str(error)) > 20)
    else:
        raise AssertionError
""")


def test_autograd_functions(run):
    run("""
from torch.nn.parallel._functions import Broadcast, Gather, ReduceAddCoalesced, Scatter
x = torch.randn(6, 3, dtype=torch.float64, device=a, requires_grad=True)
one, two = Scatter.apply([0, 1], None, 0, x)
check(one.device == a and two.device == b)
y = Gather.apply(0, 0, one * 2, two * 3)
y.sum().backward()
check(same(x.grad, torch.tensor([2.0] * 3 + [3.0] * 3, dtype=torch.float64)[:, None].expand(6, 3)))
x.grad = None
for copy in Broadcast.apply([0, 1], x):
    (copy * copy).sum().backward()
check(same(x.grad, 4 * x.detach()))
""")


def test_data_parallel_computes_what_one_device_computes(run):
    run("""
torch.manual_seed(0)
def build():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 3)).double()

whole, module = build().to(a), build().to(a)
parallel = nn.DataParallel(module)
check(parallel.device_ids == [0, 1])
optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (whole, module)]
warnings.simplefilter("error")  # none of NCCL's absence
used = [torch.accel.memory_stats(d)["allocation.all.allocated"] for d in (0, 1)]
for step in range(4):
    x, target = torch.randn(10, 6, dtype=torch.float64), torch.randn(10, 3, dtype=torch.float64).to(a)
    outputs = [m(x.to(a)) if m is whole else m(x) for m in (whole, parallel)]
    torch.testing.assert_close(outputs[1].cpu(), outputs[0].cpu(), rtol=1e-11, atol=1e-13)
    for output, optimizer in zip(outputs, optimizers):
        optimizer.zero_grad()
        nn.functional.mse_loss(output, target).backward()
        optimizer.step()
    for p, q in zip(whole.parameters(), module.parameters()):
        check(p.grad.device == q.grad.device == a)
        torch.testing.assert_close(q.grad.cpu(), p.grad.cpu(), rtol=1e-11, atol=1e-13)  # summed in another order
        torch.testing.assert_close(q.detach().cpu(), p.detach().cpu(), rtol=1e-11, atol=1e-13)
check(torch.accel.memory_stats(1)["allocation.all.allocated"] > used[1])  # the second device took part
with torch.no_grad():
    expected = module(x.to(a)).cpu()
    check(same(parallel(x), expected))
    result = nn.parallel.data_parallel(module, x, [0, 1], 1)
    check(result.device == b and same(result, expected))
""")


def test_data_parallel_takes_nested_arguments_buffers_and_autocast(run):
    run("""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("shift", torch.arange(4.0))
    @torch.autocast("accel", torch.bfloat16)  # in the threads, as torch says: parallel_apply looks at CUDA's alone
    def forward(self, pair, *, scale):
        check(pair["x"].device == self.shift.device == self.linear.weight.device)
        return {"y": self.linear(pair["x"]) * scale, "z": (pair["x"] + self.shift, pair["x"])}

net = Net().to(b)
with torch.no_grad():  # whole numbers, so that no order of summation shows
    net.linear.weight.copy_(torch.randint(-4, 5, (4, 4)))
    net.linear.bias.copy_(torch.arange(4))
parallel = nn.DataParallel(net, device_ids=[1, 0], output_device=0)
x = torch.randint(-3, 4, (5, 4)).float()
result = parallel({"x": x}, scale=2.0)
expected = net({"x": x.to(b)}, scale=2.0)
check(result["y"].device == a and result["y"].dtype == torch.bfloat16 and same(result["y"], expected["y"]))
check(same(result["z"][0], expected["z"][0]) and same(result["z"][1], x))
try:
    nn.DataParallel(nn.Linear(2, 2), [0, 1])(torch.ones(2, 2))
except RuntimeError as error:
    check("module must have its parameters and buffers on device accel:0" in str(error))
else:
    raise AssertionError
""")


def test_one_device_needs_no_copies():
    module = torch.nn.DataParallel(torch.nn.Linear(3, 2), [0])
    x = torch.randn(4, 3)
    assert module.module.weight.device == torch.device("accel", 0)
    assert torch.equal(module(x).cpu(), module.module(x.to("accel")).cpu())


def test_functions_of_another_device_type_are_left_to_torch():
    from torch_accel import _compat

    assert torch._C._scatter.args[0] is _parallel.scatter  # ours, for accel tensors
    calls = []
    elsewhere = torch.ones(2, device="meta")
    _compat._choose(_parallel.scatter, lambda *arguments: calls.append(arguments), elsewhere, [0])
    assert calls == [(elsewhere, [0])]
