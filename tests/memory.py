"""The device's memory in tests that compare it with what it was."""

import gc

import torch

from torch_accel import _C


def settled() -> int:
    """Bytes that tensors hold on the current device, once nothing of earlier tests goes any more.

    That is: reference cycles, and graphs which autograd's threads let go of a little after ``backward()``.
    """
    gc.collect()
    _C._settle_engine()
    torch.accel.synchronize()
    return torch.accel.memory_allocated()
