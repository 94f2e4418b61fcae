"""Right training programs: autograd's threads, optimisers, graphs: see faults.py."""

import torch
from torch.nn import functional as F

from tests.sanitizer.faults import Fault


def model():
    torch.manual_seed(0)
    return torch.nn.Linear(16, 4).to("accel")


def data():
    torch.manual_seed(1)
    return torch.randn(8, 16).to("accel"), torch.randn(8, 4).to("accel")


def backward_on_a_side_stream():
    main, side = torch.accel.current_stream(), torch.accel.Stream()
    net, (x, y) = model(), data()
    before = net.weight.detach().clone()
    side.wait_stream(main)
    with torch.accel.stream(side):
        loss = F.mse_loss(net(x), y)  # [forward]
        loss.backward()  # what it launches is reported with the forward's line
    main.wait_stream(side)  # fault: after
    with torch.no_grad():
        net.weight -= 0.1 * net.weight.grad  # [step]
    return not torch.equal(before, net.weight)


def loss_of_a_side_stream():
    # The backward runs on the streams of the forward; what is handed to it comes from the caller's.
    main, side = torch.accel.current_stream(), torch.accel.Stream()
    w = torch.ones(64, device="accel", requires_grad=True)
    side.wait_stream(main)
    with torch.accel.stream(side):
        y = w.exp()  # [forward]
    main.wait_stream(side)  # fault: forward
    (y * 2).sum().backward()  # [loss]
    return w.grad.cpu().sum().item() > 0


def optimizer_on_a_side_stream():
    main, side = torch.accel.current_stream(), torch.accel.Stream()
    net, (x, y) = model(), data()
    optimizer = torch.optim.AdamW(net.parameters(), foreach=True)
    losses = []
    for _ in range(3):
        loss = F.mse_loss(net(x), y)  # [forward]
        loss.backward()
        losses.append(loss.detach())
        side.wait_stream(main)  # fault: before
        with torch.accel.stream(side):
            optimizer.step()  # [step]
        main.wait_stream(side)  # fault: after
        optimizer.zero_grad(set_to_none=False)  # [zero]
    return losses[2].item() < losses[0].item()


def reduce_on_a_side_stream():
    # As data-parallel training overlaps: a bucket of gradients is reduced while others are computed.
    main, reduce = torch.accel.current_stream(), torch.accel.Stream()
    gradients = [torch.full((256,), float(number), device="accel") for number in range(4)]
    for gradient in gradients:
        gradient.mul_(2)  # [compute]
        reduce.wait_stream(main)  # fault: computed
        with torch.accel.stream(reduce):
            gradient.div_(2)  # [reduce]
    main.wait_stream(reduce)  # fault: reduced
    norm = torch.stack([gradient.sum() for gradient in gradients])  # [use]
    return norm.cpu().tolist() == [0.0, 256.0, 512.0, 768.0]


def replay():
    main, side = torch.accel.current_stream(), torch.accel.Stream()
    x = torch.ones(64, device="accel")
    graph = torch.accel.AccelGraph()
    torch.accel.synchronize()
    with torch.accel.graph(graph):
        y = x * 2  # [captured]
    graph.replay()
    side.wait_stream(main)  # fault: input
    with torch.accel.stream(side):
        x.fill_(2)  # [overwrite]
    main.wait_stream(side)
    graph.replay()
    side.wait_stream(main)  # fault: output
    with torch.accel.stream(side):
        return y.cpu().sum().item() == 256  # [read]


def replay_of_pinned_input():
    staging = torch.ones(64, pin_memory=True)
    x = torch.zeros(64, device="accel")
    graph = torch.accel.AccelGraph()
    torch.accel.synchronize()
    with torch.accel.graph(graph):
        x.copy_(staging, non_blocking=True)  # [captured]
    graph.replay()
    torch.accel.synchronize()  # fault: synchronize
    staging.fill_(2)  # [overwrite]
    graph.replay()
    return x.cpu().sum().item() == 128


def branches_of_a_capture():
    # Two branches that the capture joins; the second needs the first.
    a, b = torch.accel.Stream(), torch.accel.Stream()
    x = torch.ones(64, device="accel")
    graph = torch.accel.AccelGraph()
    torch.accel.synchronize()
    with torch.accel.graph(graph):
        capturing = torch.accel.current_stream()
        a.wait_stream(capturing)
        b.wait_stream(capturing)
        with torch.accel.stream(a):
            x.mul_(2)  # [first]
        b.wait_stream(a)  # fault: branch
        with torch.accel.stream(b):
            x.add_(1)  # [second]
        capturing.wait_stream(a)
        capturing.wait_stream(b)
    graph.replay()
    return x.cpu().sum().item() == 64 * 3


FAULTS = [
    Fault(backward_on_a_side_stream, "after", first=("mm", "forward"), second=("mul", "step"), remedy="wait_stream"),
    Fault(loss_of_a_side_stream, "forward", first=("exp", "forward"), second=("mul", "loss"), remedy="wait_stream"),
    Fault(
        optimizer_on_a_side_stream,
        "before",
        first=("addmm", "forward"),
        second=("_foreach_mul_", "step"),
        remedy="wait_stream",
    ),
    Fault(
        optimizer_on_a_side_stream,
        "after",
        first=("_foreach_addcmul_", "step"),
        second=("_foreach_zero_", "zero"),
        remedy="wait_stream",
    ),
    Fault(
        reduce_on_a_side_stream, "computed", first=("mul", "compute"), second=("div", "reduce"), remedy="wait_stream"
    ),
    Fault(reduce_on_a_side_stream, "reduced", first=("div", "reduce"), second=("sum", "use"), remedy="wait_stream"),
    Fault(replay, "input", first=("mul", "captured"), second=("fill_", "overwrite"), remedy="wait_stream"),
    Fault(replay, "output", first=("mul", "captured"), second=("copy_", "read"), remedy="wait_stream"),
    Fault(
        replay_of_pinned_input,
        "synchronize",
        first=("copy_", "captured"),
        second=("fill_", "overwrite"),
        remedy="synchronize",
    ),
    Fault(branches_of_a_capture, "branch", first=("mul", "first"), second=("add", "second"), remedy="wait_stream"),
]
