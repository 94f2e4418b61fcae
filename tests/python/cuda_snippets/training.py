"""Training loops."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

# They choose the CPU where there is no CUDA, and must then give the same.
EITHER = ("chosen_device", "half_inference", "moved_optimizer", "recurrent")
TOLERANCE = {"recurrent": 1e-6}  # the CPU alone has oneDNN's LSTM


def data():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(32, 8, generator=generator), torch.randint(3, (32,), generator=generator)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


def train(model, inputs, targets, optimizer):
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def chosen_device():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    inputs, targets = data()
    model = network().to(device)
    return train(model, inputs.to(device), targets.to(device), torch.optim.SGD(model.parameters(), 0.1, momentum=0.9))


def hard_coded_cuda():
    inputs, targets = data()
    model = network().cuda()
    assert all(p.is_cuda for p in model.parameters())
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, targets), batch_size=8)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    for batch, labels in loader:
        batch, labels = batch.cuda(non_blocking=True), labels.cuda(0, True)
        optimizer.zero_grad(set_to_none=True)
        nn.CrossEntropyLoss()(model(batch), labels).backward()
        optimizer.step()
    return model.state_dict()


def hard_coded_cuda_on_cpu():
    inputs, targets = data()
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    for batch, labels in zip(inputs.split(8), targets.split(8)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch), labels).backward()
        optimizer.step()
    return model.state_dict()


def data_parallel():
    inputs, targets = data()
    model = nn.DataParallel(network()).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return train(model, inputs.cuda(), targets.cuda(), optimizer)


def data_parallel_on_cpu():
    model = network()
    return train(model, *data(), torch.optim.SGD(model.parameters(), lr=0.1))


def checkpointed():
    model = network().to("cuda:0")
    inputs = data()[0].to("cuda:0").requires_grad_()
    hidden = torch.utils.checkpoint.checkpoint(model[:2], inputs, use_reentrant=False)
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        model[2](hidden).square().sum().backward()
    return [inputs.grad, model[0].weight.grad]


def checkpointed_on_cpu():
    model = network()
    inputs = data()[0].requires_grad_()
    model(inputs).square().sum().backward()
    return [inputs.grad, model[0].weight.grad]


def moved_optimizer():
    """The state of an optimiser that was loaded on the CPU follows its model."""
    inputs, targets = data()
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, foreach=True)
    train(model, inputs, targets, optimizer)
    if torch.cuda.is_available():
        model.cuda()
        for state in optimizer.state.values():
            for key, value in state.items():
                if torch.is_tensor(value) and key != "step":
                    state[key] = value.cuda()
        inputs, targets = inputs.cuda(), targets.cuda()
    return train(model, inputs, targets, optimizer)


def recurrent():
    assert torch.backends.cudnn.enabled and isinstance(torch.backends.cuda.matmul.allow_tf32, bool)
    with torch.backends.cudnn.flags(benchmark=True, deterministic=True):
        return run_recurrent()


def run_recurrent():
    torch.manual_seed(0)
    lstm = nn.LSTM(4, 6, num_layers=2, batch_first=True)
    packed = pack_padded_sequence(torch.randn(3, 5, 4), [5, 3, 2], batch_first=True)
    if torch.cuda.is_available():
        lstm, packed = lstm.cuda(), packed.cuda()
        assert packed.is_cuda
    lstm.flatten_parameters()
    output, (hidden, _) = lstm(packed)
    output, lengths = pad_packed_sequence(output, batch_first=True)
    output.sum().backward()
    return [output, hidden, lengths, lstm.weight_hh_l0.grad]


def half_inference():
    """A network in float16, without autocast."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2)).eval()
    images = torch.randn(2, 3, 8, 8)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = model.to(device=device, dtype=torch.half, memory_format=torch.channels_last)
    with torch.inference_mode():
        return model(images.to(device, torch.half).to(memory_format=torch.channels_last))
