"""Each test of this folder sets the mode itself and begins without reports."""

import pytest
import torch

from torch_accel import sanitizer


@pytest.fixture(autouse=True)
def fresh():
    torch.accel.synchronize()
    with sanitizer.enabled("off"):
        sanitizer.report(reset=True)
        yield
        sanitizer.report(reset=True)
