"""Rows of csrc/aten/shapes/normalization.cpp: queued, and the CPU's results bit for bit."""

import pytest
import torch

from torch_accel.testing import hold_stream
from torch_accel.testing.held import check_held, check_refused

aten = torch.ops.aten
CL = torch.channels_last
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def inputs(dtype=torch.float32):
    """Layouts of a batch of images with 6 channels."""
    x = torch.randn(4, 6, 5, 3).to(dtype)
    return {
        "contiguous": x,
        "channels_last": x.to(memory_format=CL),
        "strided": torch.randn(4, 6, 5, 6).to(dtype)[..., ::2],
        "transposed": x.transpose(2, 3),
    }


LAYOUTS = list(inputs())


# ---- Layer norm


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dims", [1, 2, 4])
def test_layer_norm(layout, dtype, dims):
    x = inputs(dtype)[layout]
    shape = x.shape[-dims:]
    w, b = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype)
    check_held(aten.native_layer_norm, x, shape, w, b, 1e-5)
    check_held(aten.native_layer_norm, x, shape, None, None, 1e-5)
    _, mean, rstd = aten.native_layer_norm(x, shape, w, b, 1e-5)
    g = torch.randn(x.shape).to(dtype)
    for mask in ([True] * 3, [True, False, False], [False, True, True]):
        check_held(aten.native_layer_norm_backward, g, x, shape, mean, rstd, w, b, mask)


def test_layer_norm_mixed_and_empty():
    x, w, b = torch.randn(3, 8).bfloat16(), torch.randn(8), torch.randn(8)
    check_held(aten.native_layer_norm, x, [8], w, b, 1e-5)
    _, mean, rstd = aten.native_layer_norm(x, [8], w, b, 1e-5)
    check_held(aten.native_layer_norm_backward, x, x, [8], mean, rstd, w, b, [True] * 3)
    check_held(aten.native_layer_norm, torch.ones(0, 8), [8], w, b, 1e-5)
    check_held(
        aten.native_layer_norm_backward,
        torch.ones(0, 8), torch.ones(0, 8), [8], torch.ones(0, 1), torch.ones(0, 1), w, b, [True] * 3,
    )  # fmt: skip


def test_layer_norm_refuses():
    x, w = torch.randn(3, 8), torch.randn(8)
    check_refused(aten.native_layer_norm, x, [7], w, w, 1e-5)
    check_refused(aten.native_layer_norm, x, [8], w[:7], w, 1e-5)
    check_refused(aten.native_layer_norm, x, [8], w.bfloat16(), w, 1e-5)
    check_refused(aten.native_layer_norm, x.long(), [8], None, None, 1e-5)


# ---- Group norm


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
def test_group_norm(layout, dtype):
    x = inputs(dtype)[layout]
    w, b = torch.randn(6).to(dtype), torch.randn(6).to(dtype)
    sizes = (4, 6, 15, 3)
    check_held(aten.native_group_norm, x, w, b, *sizes, 1e-5)
    check_held(aten.native_group_norm, x, None, None, *sizes, 1e-5)
    _, mean, rstd = aten.native_group_norm(x, w, b, *sizes, 1e-5)
    g = torch.randn(x.shape).to(dtype).to(memory_format=CL)
    for mask in ([True] * 3, [True, False, False]):
        check_held(aten.native_group_norm_backward, g, x, mean, rstd, w, *sizes, mask)
    check_held(aten.native_group_norm_backward, g, x, mean, rstd, None, *sizes, [True, False, False])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_group_norm_of_any_layout(layout):
    check_held(torch.nn.functional.group_norm, inputs()[layout], 3, torch.randn(6), torch.randn(6))


def test_group_norm_mixed_and_empty():
    x, w = torch.randn(4, 6, 5).bfloat16(), torch.randn(6)
    check_held(aten.native_group_norm, x, w, w, 4, 6, 5, 2, 1e-5)
    _, mean, rstd = aten.native_group_norm(x, w, w, 4, 6, 5, 2, 1e-5)
    check_held(aten.native_group_norm_backward, x, x, mean, rstd, w, 4, 6, 5, 2, [True] * 3)
    check_held(aten.native_group_norm, x[:0], None, None, 0, 6, 5, 2, 1e-5)


def test_group_norm_refuses():
    x, w = torch.randn(4, 6, 5), torch.randn(6)
    check_refused(aten.native_group_norm, x, w, w, 4, 6, 5, 4, 1e-5)
    check_refused(aten.native_group_norm, x, w[:5], w, 4, 6, 5, 2, 1e-5)
    check_refused(aten.native_group_norm, x, w, w, 4, 6, 5, 0, 1e-5)
    check_refused(aten.native_group_norm, inputs()["strided"], w, w, 4, 6, 15, 2, 1e-5)


# ---- Batch norm


def statistics(dtype=torch.float32):
    return torch.randn(6).to(dtype), torch.rand(6).to(dtype) + 0.5


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_batch_norm(layout, dtype, training):
    x = inputs(dtype)[layout]
    w, b = statistics(dtype)
    mean, var = statistics(dtype)
    check_held(aten.native_batch_norm, x, w, b, mean, var, training, 0.1, 1e-5)
    check_held(aten._native_batch_norm_legit, x, w, None, mean, var, training, 0.1, 1e-5)
    if training:
        check_held(aten.native_batch_norm, x, None, None, None, None, training, 0.1, 1e-5)
        check_held(aten._native_batch_norm_legit.no_stats, x, w, b, training, 0.1, 1e-5)
        check_held(aten._batch_norm_with_update, x, w, b, mean, var, 0.1, 1e-5)
        check_held(aten.batch_norm_update_stats, x, mean, var, 0.1)
    g = torch.randn(x.shape).to(dtype)
    _, *saved = aten.native_batch_norm(x, w, b, mean.clone(), var.clone(), training, 0.1, 1e-5)
    reserve = torch.empty(0, dtype=torch.uint8)
    for mask in ([True] * 3, [True, False, False], [False, True, True]):
        check_held(aten.native_batch_norm_backward, g, x, w, mean, var, *saved, training, 1e-5, mask)
        check_held(aten.batch_norm_backward, g, x, w, mean, var, *saved, training, 1e-5, mask, reserve)


@pytest.mark.parametrize("sizes", [(4, 6), (4, 6, 5), (2, 6, 3, 4, 5)], ids=str)
def test_batch_norm_dimensions(sizes):
    x = torch.randn(sizes)
    w, b = statistics()
    mean, var = statistics()
    arguments = (w, b, mean, var, True, 0.1, 1e-5)
    check_held(aten.native_batch_norm, x, *arguments)
    check_held(aten.native_batch_norm, x.transpose(0, 1).contiguous().transpose(0, 1), *arguments)
    if len(sizes) == 5:
        check_held(aten.native_batch_norm, x.to(memory_format=torch.channels_last_3d), *arguments)


def test_batch_norm_mixed():
    x = inputs(torch.bfloat16)["channels_last"]
    mean, var = statistics()
    check_held(aten.native_batch_norm, x, mean, var, mean, var, True, 0.1, 1e-5)
    _, *saved = aten.native_batch_norm(x, mean, var, None, None, True, 0.1, 1e-5)
    check_held(aten.native_batch_norm_backward, x, x, mean, None, None, *saved, True, 1e-5, [True] * 3)


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_into_outputs(training):
    x = inputs()["contiguous"]
    mean, var = statistics()
    out, a, b = torch.empty(0), torch.empty(0), torch.empty(0)
    check_held(
        aten.native_batch_norm.out, x, mean, var, mean, var, training, 0.1, 1e-5, out=out, save_mean=a, save_invstd=b
    )


def test_strided_parameters():
    x = inputs()["contiguous"]
    w, mean, var = torch.randn(12)[::2], torch.randn(12)[::2], torch.rand(12)[1::2]
    check_held(aten.native_batch_norm, x, w, w, mean, var, True, 0.1, 1e-5)
    check_held(aten.native_batch_norm, x.to(memory_format=CL), w, w, mean, var, False, 0.1, 1e-5)


def test_batch_norm_refuses():
    x = inputs()["contiguous"]
    mean, var = statistics()
    check_refused(aten.native_batch_norm, x, mean.double(), var, mean, var, True, 0.1, 1e-5)
    check_refused(aten.native_batch_norm, x.long(), None, None, None, None, True, 0.1, 1e-5)


def test_evaluation_only_reads_the_statistics():
    """Two streams may evaluate with the same statistics; training writes them, in stream order."""
    x, (mean, var) = inputs()["contiguous"], statistics()
    device = [t.to("accel") for t in (x, mean, var)]
    with hold_stream():
        torch.nn.functional.batch_norm(device[0], *device[1:], training=True)
        y = torch.nn.functional.batch_norm(device[0], *device[1:])
    torch.nn.functional.batch_norm(x, mean, var, training=True)
    assert torch.equal(y.cpu(), torch.nn.functional.batch_norm(x, mean, var))
    expected = (x.double() - mean[:, None, None]) / (var[:, None, None] + 1e-5).sqrt()
    torch.testing.assert_close(y.cpu().double(), expected, rtol=1e-4, atol=1e-4)


# ---- Weight norm


@pytest.mark.parametrize("dim", [0, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_weight_norm(dtype, dim):
    v = torch.randn(4, 3, 5).to(dtype)
    sizes = [1, 1, 1]
    sizes[dim] = v.shape[dim]
    g = torch.rand(sizes).to(dtype)
    check_held(aten._weight_norm_interface, v, g, dim)
    _, norms = aten._weight_norm_interface(v, g, dim)
    check_held(aten._weight_norm_interface_backward, v + 1, v, g, norms, dim)
