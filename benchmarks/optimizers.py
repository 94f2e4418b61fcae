"""What a step of an optimizer costs: accel against CPU tensors, by the same form of the step.

    python -m benchmarks.optimizers -k AdamW

harness.py says what is printed. Two lists of parameters: 200 of 64 elements, where a step is launches and nothing else,
and those of a small GPT, where it is memory.
"""

from collections.abc import Callable
from functools import partial

import torch

from benchmarks.harness import Work, Workload, main

Shapes = list[tuple[int, ...]]


def gpt(layers: int = 6, width: int = 384, vocabulary: int = 8192, context: int = 256) -> Shapes:
    """The parameters of a decoder: 13.9 million numbers in 76 tensors."""
    block: Shapes = [(width,), (width,)]
    block += [(3 * width, width), (3 * width,), (width, width), (width,)]
    block += [(width,), (width,)]
    block += [(4 * width, width), (4 * width,), (width, 4 * width), (width,)]
    return [(vocabulary, width), (context, width), *(block * layers), (width,), (width,)]


LISTS: dict[str, tuple[Shapes, int]] = {
    # name: (shapes, calls a round)
    "200x64": ([(64,)] * 200, 20),
    "GPT": (gpt(), 2),
}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "AdamW": torch.optim.AdamW,
    "SGD": partial(torch.optim.SGD, lr=1e-3, momentum=0.9),
}
FORMS = {
    "for-loop": {"foreach": False, "fused": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}


def step(device: str, shapes: Shapes, make: Callable[..., torch.optim.Optimizer], form: dict[str, bool]) -> Work:
    """A step of an optimizer that has its state."""
    generator = torch.Generator().manual_seed(0)
    parameters = [torch.randn(shape, generator=generator).to(device).requires_grad_() for shape in shapes]
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 1e-3)
    optimizer = make(parameters, **form)
    optimizer.step()
    return optimizer.step


WORKLOADS = [
    Workload.on_devices(
        f"{optimizer}, {name}, {form}",
        partial(step, shapes=shapes, make=OPTIMIZERS[optimizer], form=FORMS[form]),
        calls,
    )
    for name, (shapes, calls) in LISTS.items()
    for optimizer in OPTIMIZERS
    for form in FORMS
]

if __name__ == "__main__":
    main(__doc__, WORKLOADS)
