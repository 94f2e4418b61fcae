"""Steps against their formulas in NumPy and float64: an oracle that shares no code with torch.

accel and the CPU run the same kernels, so that equality of the two (torch_accel.conformance) proves the plumbing only.
"""

import numpy as np
import pytest
import torch

STEPS = 5
START = np.linspace(-1, 1, 12).reshape(3, 4)
GRADIENTS = [np.cos(np.arange(12.0) + number).reshape(3, 4) for number in range(STEPS)]


def sgd(p, lr, momentum=0.0, dampening=0.0, nesterov=False, weight_decay=0.0, maximize=False):
    buffer = None
    for g in GRADIENTS:
        g = (-g if maximize else g) + weight_decay * p
        if momentum:
            buffer = g if buffer is None else momentum * buffer + (1 - dampening) * g
            g = g + momentum * buffer if nesterov else buffer
        p = p - lr * g
    return p


def adam(p, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, amsgrad=False, maximize=False, decoupled=False):
    m, v, largest = np.zeros_like(p), np.zeros_like(p), np.zeros_like(p)
    for t, g in enumerate(GRADIENTS, start=1):
        g = -g if maximize else g
        if decoupled:
            p = p * (1 - lr * weight_decay)
        else:
            g = g + weight_decay * p
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        largest = np.maximum(largest, v)
        second = (largest if amsgrad else v) / (1 - betas[1] ** t)
        p = p - lr * m / (1 - betas[0] ** t) / (np.sqrt(second) + eps)
    return p


def adagrad(p, lr, lr_decay=0.0, weight_decay=0.0, initial_accumulator_value=0.0, eps=1e-10):
    total = np.full_like(p, initial_accumulator_value)
    for t, g in enumerate(GRADIENTS, start=1):
        g = g + weight_decay * p
        total = total + g**2
        p = p - lr / (1 + (t - 1) * lr_decay) * g / (np.sqrt(total) + eps)
    return p


def rmsprop(p, lr, alpha=0.99, eps=1e-8, momentum=0.0, centered=False):
    v, mean, buffer = np.zeros_like(p), np.zeros_like(p), np.zeros_like(p)
    for g in GRADIENTS:
        v = alpha * v + (1 - alpha) * g**2
        mean = alpha * mean + (1 - alpha) * g
        update = g / (np.sqrt(v - mean**2 if centered else v) + eps)
        buffer = momentum * buffer + update
        p = p - lr * buffer
    return p


def adamw(p, lr, weight_decay=1e-2, **options):
    return adam(p, lr, weight_decay=weight_decay, decoupled=True, **options)


CASES = [
    (torch.optim.SGD, sgd, {"lr": 0.1}),
    (torch.optim.SGD, sgd, {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1, "maximize": True}),
    (torch.optim.SGD, sgd, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    (torch.optim.Adam, adam, {"lr": 0.01}),
    (torch.optim.Adam, adam, {"lr": 0.01, "weight_decay": 0.1, "amsgrad": True, "maximize": True}),
    (torch.optim.AdamW, adamw, {"lr": 0.01}),
    (torch.optim.AdamW, adamw, {"lr": 0.01, "weight_decay": 0.1, "amsgrad": True, "betas": (0.8, 0.9)}),
    (torch.optim.Adagrad, adagrad, {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5}),
    (torch.optim.RMSprop, rmsprop, {"lr": 0.01, "momentum": 0.9, "centered": True}),
]
#: what a step may be told besides -> the optimizers that know it
WAYS = {
    "plain": ({"foreach": False}, None),
    "foreach": ({"foreach": True}, None),
    "fused": ({"fused": True}, {"SGD", "Adam", "AdamW", "Adagrad"}),
    "capturable": ({"foreach": True, "capturable": True}, {"Adam", "AdamW", "RMSprop"}),
    "fused capturable": ({"fused": True, "capturable": True}, {"Adam", "AdamW"}),
}


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 2e-6)], ids=["f64", "f32"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("optimizer, formula, options", CASES)
def test_a_step_is_its_formula(optimizer, formula, options, way, dtype, tolerance):
    extra, known = WAYS[way]
    if known is not None and optimizer.__name__ not in known:
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            optimizer([torch.zeros(1, device="accel")], **options, **extra)
        return
    p = torch.from_numpy(START).to("accel", dtype).requires_grad_()
    own = optimizer([p], **options, **extra)
    for gradient in GRADIENTS:
        p.grad = torch.from_numpy(gradient).to("accel", dtype)
        own.step()
    if way == "capturable":
        tolerance = max(tolerance, 1e-6)  # powers of the betas come from a float32 count of steps
    np.testing.assert_allclose(p.detach().cpu().double().numpy(), formula(START, **options), rtol=0, atol=tolerance)
