"""CUDA graphs."""

import torch
from torch import nn


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2))


def batches():
    generator = torch.Generator().manual_seed(3)
    return [(torch.randn(5, 6, generator=generator), torch.randn(5, 2, generator=generator)) for _ in range(3)]


def inference():
    model = network().cuda().eval()
    static = torch.zeros(5, 6, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            model(static)
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            assert torch.cuda.is_current_stream_capturing()
            output = model(static)
    results = []
    for inputs, _ in batches():
        static.copy_(inputs)
        graph.replay()
        results.append(output.clone())
    return results


def inference_on_cpu():
    model = network()
    return [model(inputs).detach() for inputs, _ in batches()]


def whole_step():
    """Forward, backward and the optimiser in one graph, with a pool that another could share."""
    model = network().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs, targets = torch.zeros(5, 6, device="cuda"), torch.zeros(5, 2, device="cuda")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            optimizer.zero_grad(set_to_none=True)
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    model.load_state_dict(before)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(cuda_graph=graph, pool=torch.cuda.graph_pool_handle(), capture_error_mode="thread_local"):
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
    losses = []
    for batch, labels in batches():
        inputs.copy_(batch)
        targets.copy_(labels)
        graph.replay()
        losses.append(loss.item())
    return losses


def whole_step_on_cpu():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for batch, labels in batches():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(batch), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def graphed_callables():
    model = network().cuda()
    model[0] = torch.cuda.make_graphed_callables(model[0], (torch.randn(5, 6, device="cuda", requires_grad=True),))
    results = []
    for inputs, targets in batches():
        inputs = inputs.cuda().requires_grad_()
        model.zero_grad()
        nn.functional.mse_loss(model(inputs), targets.cuda()).backward()
        results += [inputs.grad.clone(), model[0].weight.grad.clone()]
    return results


def graphed_callables_on_cpu():
    model = network()
    results = []
    for inputs, targets in batches():
        inputs.requires_grad_()
        model.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        results += [inputs.grad, model[0].weight.grad.clone()]
    return results
