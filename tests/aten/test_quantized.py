"""accel has no quantized tensors: every way to one ends in an error that names accel and torchao."""

import pytest
import torch

pytestmark = pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")


def quantized():
    return torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8)


WAYS = {
    "quantize_per_tensor": lambda: torch.quantize_per_tensor(torch.randn(4, device="accel"), 0.1, 0, torch.qint8),
    "quantize_per_channel": lambda: torch.quantize_per_channel(
        torch.randn(2, 4, device="accel"),
        torch.ones(2, device="accel"),
        torch.zeros(2, device="accel", dtype=torch.long),
        0,
        torch.qint8,
    ),
    "quantize_per_tensor_dynamic": lambda: torch.quantize_per_tensor_dynamic(
        torch.randn(4, device="accel"), torch.qint8, False
    ),
    "to": lambda: quantized().to("accel"),
    "empty": lambda: torch.empty(3, dtype=torch.qint8, device="accel"),
    "_empty_affine_quantized": lambda: torch._empty_affine_quantized([3], scale=0.1, dtype=torch.qint8, device="accel"),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_no_quantized_tensors(way):
    with pytest.raises(NotImplementedError, match=r"accel.*torchao"):
        way()
    assert torch.ones(3, device="accel").sum().item() == 3  # the stream goes on


def test_fake_quantization_is_dense():
    x = torch.randn(20)
    result = torch.fake_quantize_per_tensor_affine(x.to("accel"), 0.1, 0, -128, 127)
    assert torch.equal(result.cpu(), torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127))
