"""Automatic mixed precision, by torch.cuda.amp and by torch.amp."""

import torch
from torch import nn
from torch.cuda.amp import GradScaler, autocast

EITHER = ("custom_function",)
TOLERANCE = {"old_names": 2e-2, "new_names": 2e-2, "flags": 2e-2}  # float16 and bfloat16, beside float32


def problem():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    return model, torch.randn(16, 8), torch.randn(16, 1)


def in_float32(clip=None):
    model, inputs, targets = problem()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(loss.item())
    return losses


def old_names():
    model, inputs, targets = problem()
    model, inputs, targets = model.cuda(), inputs.cuda(), targets.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = GradScaler()
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        with autocast():
            outputs = model(inputs)
            assert outputs.dtype == torch.float16
            loss = nn.functional.mse_loss(outputs.float(), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert scaler.get_scale() == 65536.0
    return losses


def old_names_on_cpu():
    return in_float32()


def new_names():
    model, inputs, targets = problem()
    device = torch.device("cuda")
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cuda")
    losses = []
    for _ in range(5):
        with torch.autocast(device_type=device.type, dtype=torch.float16):
            loss = nn.functional.mse_loss(model(inputs.to(device)).float(), targets.to(device))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses


def new_names_on_cpu():
    return in_float32(clip=0.5)


def flags():
    """What a library asks before it chooses a dtype."""
    model, inputs, _ = problem()
    dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    model, inputs = model.cuda(), inputs.cuda()
    assert not torch.is_autocast_enabled()
    with torch.amp.autocast("cuda", dtype=dtype):
        assert torch.is_autocast_enabled() and torch.is_autocast_enabled("cuda")
        assert torch.get_autocast_gpu_dtype() == torch.get_autocast_dtype("cuda") == dtype
        outputs = model(inputs)
        with torch.autocast("cuda", enabled=False):
            assert not torch.is_autocast_enabled() and model(inputs).dtype == torch.float32
    return outputs.float()


def flags_on_cpu():
    model, inputs, _ = problem()
    return model(inputs)


def custom_function():
    """A function that asks for float32 inside autocast, with the decorators of both places."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    results = []
    for forward_in, backward_in in (
        (torch.amp.custom_fwd(device_type=device, cast_inputs=torch.float32), torch.amp.custom_bwd(device_type=device)),
        (torch.cuda.amp.custom_fwd(cast_inputs=torch.float32), torch.cuda.amp.custom_bwd),
    ):

        class Square(torch.autograd.Function):
            @staticmethod
            @forward_in
            def forward(ctx, x):
                if device == "cuda":
                    assert x.dtype == torch.float32 and not torch.is_autocast_enabled()
                ctx.save_for_backward(x)
                return x.float() * x.float()

            @staticmethod
            @backward_in
            def backward(ctx, grad):
                return 2 * ctx.saved_tensors[0] * grad

        x = torch.arange(4.0).to(device, torch.float16).requires_grad_()
        with torch.autocast(device, dtype=torch.float16):
            y = Square.apply(x)
        y.sum().backward()
        results += [y, x.grad]
    return results
