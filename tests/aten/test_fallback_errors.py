"""Errors are the CPU's, and name accel where the CPU's would mislead; operands and device survive them."""

import gc

import pytest
import torch
from expecttest import assert_expected_inline

from tests.aten.fallback_cases import check_equal
from tests.memory import settled

pytestmark = pytest.mark.usefixtures("no_leaked_workspace")


ERRORS = {
    "shape": lambda d: torch.ones(2, 3, device=d) @ torch.ones(2, 3, device=d),
    "broadcast": lambda d: torch.ones(3, device=d) + torch.ones(4, device=d),
    "too many indices": lambda d: torch.ones(3, device=d)[0, 0],
    "dim out of range": lambda d: torch.ones(3, device=d).sum(4),
    "dtype": lambda d: torch.ones(3, device=d).bitwise_and(torch.ones(3, device=d)),
    "out of the wrong dtype": lambda d: torch.add(
        torch.ones(3, device=d), 1, out=torch.ones(3, dtype=torch.int32, device=d)
    ),
    "in-place of the wrong dtype": lambda d: torch.ones(3, dtype=torch.int32, device=d).add_(1.5),
    "not implemented for the dtype": lambda d: torch.linalg.svd(torch.ones(3, 3, dtype=torch.float16, device=d)),
    "singular": lambda d: torch.linalg.inv(torch.zeros(3, 3, device=d)),
    "not positive definite": lambda d: torch.linalg.cholesky(-torch.eye(3, device=d)),
    "expanded in place": lambda d: torch.ones(1, device=d).expand(3).add_(1),
    "expanded in place by mul": lambda d: torch.ones(1, 3, device=d).expand(3, 3).mul_(torch.ones(3, 3, device=d)),
    "expanded out": lambda d: torch.add(torch.ones(3, device=d), 1, out=torch.ones(1, device=d).expand(3)),
    "out overlaps an operand": lambda d: (lambda x: torch.add(x[:-1], 1, out=x[1:]))(torch.ones(4, device=d)),
    "fill_ by a vector": lambda d: torch.ones(3, device=d).fill_(torch.ones(2, device=d)),
    "scatter of another dtype": lambda d: torch.ones(3, device=d).scatter(
        0, torch.tensor([0], device=d), torch.ones(1, dtype=torch.int32, device=d)
    ),
    "cat of nothing": lambda d: torch.cat([]),
    "max of nothing": lambda d: torch.empty(0, device=d).max(),
    "repeat_interleave negative": lambda d: torch.repeat_interleave(torch.tensor([-1], device=d)),
    "avg_pool": lambda d: torch.nn.functional.avg_pool2d(torch.ones(1, 2, device=d), 3),
    "conv of wrong channels": lambda d: torch.nn.functional.conv2d(
        torch.ones(1, 2, 5, 5, device=d), torch.ones(3, 4, 2, 2, device=d)
    ),
    "conv of another dtype": lambda d: torch.nn.functional.conv2d(
        torch.ones(1, 2, 5, 5, device=d), torch.ones(3, 2, 2, 2, device=d, dtype=torch.float64)
    ),
}


@pytest.mark.parametrize("call", ERRORS.values(), ids=ERRORS.keys())
def test_errors_are_the_cpus(call):
    with pytest.raises(Exception) as expected:
        call("cpu")
    with pytest.raises(expected.type) as raised:
        call("accel")
    assert type(raised.value) is expected.type
    assert str(raised.value) == str(expected.value)
    assert torch.ones(3, device="accel").sum().item() == 3  # and no error is left behind


def test_failed_kernel_leaves_its_operands():
    x = torch.arange(6.0).reshape(2, 3).to("accel")
    allocated = settled()
    for _ in range(3):
        with pytest.raises(RuntimeError):
            x @ x
        with pytest.raises(torch.linalg.LinAlgError):
            torch.linalg.inv(torch.zeros(3, 3, device="accel"))
    gc.collect()
    assert torch.accel.memory_allocated() == allocated
    assert torch.equal(x.cpu(), torch.arange(6.0).reshape(2, 3))


OTHER_LAYOUTS = {
    "to_mkldnn": lambda x: x.to_mkldnn(),
    "quantize": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
}


@pytest.mark.parametrize("call", OTHER_LAYOUTS.values(), ids=OTHER_LAYOUTS.keys())
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_other_layouts_name_accel(call):
    x = torch.eye(3, device="accel")
    with pytest.raises((RuntimeError, NotImplementedError), match="accel"):
        call(x)
    check_equal(x, torch.eye(3))


PACKING = {
    "fbgemm_linear_quantize_weight": lambda x: torch.fbgemm_linear_quantize_weight(x),
    "fbgemm_pack_gemm_matrix_fp16": lambda x: torch.fbgemm_pack_gemm_matrix_fp16(x),
    "fbgemm_pack_quantized_matrix": lambda x: torch.fbgemm_pack_quantized_matrix(x.to(torch.int8)),
}


@pytest.mark.parametrize("call", PACKING.values(), ids=PACKING.keys())
def test_packing_for_the_host_is_refused(call):
    with pytest.raises(NotImplementedError, match=r"accel: aten::fbgemm_\w+ packs weights for the host's processor"):
        call(torch.ones(3, 4, device="accel"))


MIXED = {
    "add": lambda x, y: x + y,
    "add, the CPU first": lambda x, y: y + x,
    "mm": lambda x, y: torch.mm(x, y),
    "cat": lambda x, y: torch.cat([x, y]),
    "where": lambda x, y: torch.where(x > 0, x, y),
    "index_select": lambda x, y: torch.index_select(x, 0, torch.tensor([0])),
    "index of CPU by accel": lambda x, y: y[torch.tensor([0], device="accel")],
    "linear": lambda x, y: torch.nn.functional.linear(x, y),
    "in-place": lambda x, y: x.add_(y),
    "out": lambda x, y: torch.add(x, x, out=y),
    "lerp": lambda x, y: torch.lerp(x, x, y),
    "batch_norm": lambda x, y: torch.nn.functional.batch_norm(x, y[0], y[0]),
    "conv": lambda x, y: torch.nn.functional.conv2d(x[None, None], y[None, None]),
    "embedding": lambda x, y: torch.nn.functional.embedding(torch.tensor([0]), x),
    "meta": lambda x, y: x + y.to("meta"),
}


@pytest.mark.parametrize("call", MIXED.values(), ids=MIXED.keys())
def test_mixed_devices(call):
    x, y = torch.eye(3, device="accel"), torch.eye(3)
    with pytest.raises((RuntimeError, IndexError), match=r"accel:0|the same device as the indexed tensor") as raised:
        call(x, y)
    assert "device" in str(raised.value)
    check_equal(x, torch.eye(3))
    assert torch.equal(y, torch.eye(3))


def test_mixed_devices_text():
    with pytest.raises(RuntimeError) as raised:
        torch.mm(torch.eye(3, device="accel"), torch.eye(3))
    assert_expected_inline(
        str(raised.value),
        """Expected all tensors to be on the same device, but got mat2 is on cpu, different from other tensors on accel:0 (when checking argument in method aten::mm)""",
    )
