"""Whole training steps in a graph: forward, backward, optimiser, scaler; the losses are the eager ones, bit for bit."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.training.decoder_lm import Decoder, text
from torch_accel.testing import wait_report

DEVICE = "accel"
WARMUP = 3


def decoder(seed=0, dropout=0.0, **options):
    """(static batch, batches, step) of a language model with a capturable AdamW."""
    torch.manual_seed(seed)
    torch.accel.manual_seed(seed)
    model, batches = Decoder().to(DEVICE), text().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, capturable=True, **options)
    batch = batches[0].clone()

    def step():
        optimizer.zero_grad(set_to_none=True)
        logits = F.dropout(model(batch[:, :-1]), dropout)
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return batch, batches, step


def losses(graphed, steps, **options):
    batch, batches, step = decoder(**options)
    side = torch.accel.Stream()
    side.wait_stream(torch.accel.current_stream())
    result = []
    with torch.accel.stream(side):
        for i in range(WARMUP):
            batch.copy_(batches[i % len(batches)])
            result.append(step().detach().clone())
    torch.accel.current_stream().wait_stream(side)
    if graphed:
        graph = torch.accel.AccelGraph()
        with torch.accel.graph(graph, stream=side):
            loss = step()
        waits = wait_report()
    for i in range(WARMUP, steps):
        batch.copy_(batches[i % len(batches)])
        if graphed:
            graph.replay()
        else:
            loss = step()
        result.append(loss.detach().clone())
    assert not graphed or wait_report() == waits
    return torch.stack(result).cpu()


@pytest.mark.parametrize(("dropout", "replays"), [(0.0, 100), (0.2, 20)])
def test_a_decoders_losses_equal_the_eager_ones(queued, dropout, replays):
    """Each replay on a batch of its own."""
    steps = WARMUP + replays
    eager = losses(False, steps, dropout=dropout)
    graphed = losses(True, steps, dropout=dropout)
    assert torch.equal(graphed, eager), (graphed - eager).abs().max()
    assert eager[-5:].mean() < eager[:5].mean()


OPTIMIZERS = {
    "Adam": lambda p: torch.optim.Adam(p, 1e-2, capturable=True),
    "Adam, foreach": lambda p: torch.optim.Adam(p, 1e-2, capturable=True, foreach=True),
    "Adam, a tensor for lr": lambda p: torch.optim.Adam(p, torch.tensor(1e-2, device=DEVICE), capturable=True),
    "AdamW": lambda p: torch.optim.AdamW(p, 1e-2, capturable=True, amsgrad=True),
    "NAdam": lambda p: torch.optim.NAdam(p, 1e-2, capturable=True),
    "RAdam": lambda p: torch.optim.RAdam(p, 1e-2, capturable=True),
    "Adamax": lambda p: torch.optim.Adamax(p, 1e-2, capturable=True),
    "Adadelta": lambda p: torch.optim.Adadelta(p, capturable=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, 1e-2, capturable=True, momentum=0.9),
    "Rprop": lambda p: torch.optim.Rprop(p, 1e-2, capturable=True),
    "ASGD": lambda p: torch.optim.ASGD(p, 1e-2, capturable=True),
    "SGD": lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_capturable_optimizers(optimizer):
    results = []
    for graphed in (False, True):
        torch.manual_seed(0)
        weights = [
            torch.randn(4, 3, device=DEVICE, requires_grad=True),
            torch.randn(3, device=DEVICE, requires_grad=True),
        ]
        grads = torch.randn(6, 4, 3, device=DEVICE)
        made = OPTIMIZERS[optimizer](weights)
        for weight in weights:
            weight.grad = torch.zeros_like(weight)

        def step(made=made):
            made.step()

        for i, grad in enumerate(grads):
            weights[0].grad.copy_(grad)
            weights[1].grad.copy_(grad[0])
            if graphed and i == 1:
                graph = torch.accel.AccelGraph()
                with torch.accel.graph(graph):
                    step()
            graph.replay() if graphed and i >= 1 else step()
        results.append([w.detach().cpu() for w in weights])
    eager, replayed = results
    assert all(map(torch.equal, replayed, eager))


@pytest.mark.parametrize("foreach", [False, True])
def test_an_optimizer_that_counts_on_the_host_is_refused(foreach):
    weight = torch.ones(3, device=DEVICE, requires_grad=True)
    weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.Adam([weight], foreach=foreach)
    graph = torch.accel.AccelGraph()
    text = r"Attempting ACCEL graph capture of step\(\) for an instance of Adam but"
    with pytest.warns(UserWarning, match="is empty"), pytest.raises(RuntimeError, match=text), torch.accel.graph(graph):
        optimizer.step()
    optimizer.step()  # as before


def test_a_scaled_step():
    """As torch.cuda allows: scale, backward and unscale in the graph, step and update outside."""
    results = []
    for graphed in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(8, 4).to(DEVICE)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler(DEVICE, init_scale=128.0, growth_interval=2)
        x = torch.randn(5, 8, device=DEVICE)
        inputs = torch.randn(6, 5, 8, device=DEVICE)
        inputs[3, 0, 0] = float("inf")

        def backward(model=model, scaler=scaler, x=x):
            with torch.autocast(DEVICE, torch.float16):
                loss = model(x).float().square().mean()
            scaler.scale(loss).backward()

        scaler.scale(torch.ones(1, device=DEVICE))  # makes the scale
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        if graphed:
            graph = torch.accel.AccelGraph()
            with torch.accel.graph(graph):
                backward()
        scales = []
        for batch in inputs:
            for parameter in model.parameters():
                parameter.grad.zero_()
            x.copy_(batch)
            graph.replay() if graphed else backward()
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        results.append((scales, [p.detach().cpu() for p in model.parameters()]))
    (eager_scales, eager), (scales, replayed) = results
    assert scales == eager_scales
    assert scales[3] < scales[2]  # the infinite input
    assert all(map(torch.equal, replayed, eager))


# ---- make_graphed_callables


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        hidden = F.dropout(self.one(x).relu(), 0.3, self.training)
        return {"out": self.two(hidden), "hidden": hidden}


def run_net(graphed, steps=5):
    torch.manual_seed(0)
    net, head = Net().to(DEVICE), nn.Linear(3, 2).to(DEVICE)
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], 0.1)
    data = torch.randn(steps, 4, 6, device=DEVICE)
    if graphed:
        sample = torch.zeros(4, 6, device=DEVICE)
        mid = torch.zeros(4, 3, device=DEVICE, requires_grad=True)
        net, head = torch.accel.make_graphed_callables((net, head), ((sample,), (mid,)))
    torch.accel.manual_seed(7)
    losses = []
    for x in data:
        optimizer.zero_grad(set_to_none=True)
        out = net(x)
        loss = head(out["out"]).square().mean() + out["hidden"].abs().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().clone())
    net.eval()
    with torch.no_grad():
        losses.append(net(data[0])["out"].sum())  # its own forward: it was captured in training
    return torch.stack(losses).cpu()


def test_graphed_callables_train_as_the_eager_ones():
    assert torch.equal(run_net(True), run_net(False))


def test_a_graphed_function():
    x = torch.randn(4, device=DEVICE, requires_grad=True)
    graphed = torch.accel.make_graphed_callables(
        lambda t: (t.sin() * 2, t.cos().detach()), (x.detach().requires_grad_(),)
    )
    one, two = graphed(x)
    one.sum().backward()
    assert torch.equal(one.detach().cpu(), (x.detach().cpu().sin() * 2))
    assert torch.equal(two.cpu(), x.detach().cpu().cos())
    assert torch.equal(x.grad.cpu(), 2 * x.detach().cpu().cos())


def test_what_graphed_callables_refuse():
    x = torch.ones(2, device=DEVICE)
    with pytest.raises(AssertionError, match="must contain only Tensors"):
        torch.accel.make_graphed_callables(lambda t: t, (3,))
    net = nn.Linear(2, 2).to(DEVICE)
    net.register_forward_hook(lambda *a: None)
    with pytest.raises(AssertionError, match="must not have hooks"):
        torch.accel.make_graphed_callables(net, (x,))
    with pytest.raises(RuntimeError, match="does not support the autocast caching"), torch.autocast(DEVICE):
        torch.accel.make_graphed_callables(lambda t: t, (x,))
