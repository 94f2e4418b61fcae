"""Rows of csrc/aten/shapes/pooling.cpp: queued, and the CPU's results bit for bit."""

import pytest
import torch

from torch_accel.testing.held import check_held, check_refused

aten = torch.ops.aten
F = torch.nn.functional
FORMATS = {2: torch.channels_last, 3: torch.channels_last_3d}
LAYOUTS = ["contiguous", "channels_last", "strided", "sample", "empty"]
DTYPES = [torch.float32, torch.float64, torch.bfloat16]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def image(layout, spatial, dtype=torch.float32, channels=4, size=6):
    x = torch.randn(2, channels, *[size] * spatial).to(dtype)
    return {
        "contiguous": x,
        "channels_last": x.to(memory_format=FORMATS[spatial]),
        "strided": torch.stack([x, x], -1)[..., 1],
        "sample": x[0],
        "empty": x[:0],
    }[layout]


images = pytest.mark.parametrize("layout", LAYOUTS)
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)
spatials = pytest.mark.parametrize("spatial", [2, 3])


@images
@dtypes
@spatials
@pytest.mark.parametrize("size", [1, 3, 8])
def test_adaptive_avg_pool(layout, dtype, spatial, size):
    x = image(layout, spatial, dtype)
    forward = getattr(aten, f"_adaptive_avg_pool{spatial}d")
    check_held(forward, x, [size] * spatial)
    y = forward(x, [size] * spatial)
    check_held(getattr(aten, f"_adaptive_avg_pool{spatial}d_backward"), y + 1, x)
    out = torch.empty(0, dtype=dtype)
    check_held(getattr(aten, f"adaptive_avg_pool{spatial}d").out, x, [size] * spatial, out=out)
    if spatial == 3:
        check_held(aten.adaptive_avg_pool3d_backward.grad_input, y + 1, x, grad_input=out)


@images
@dtypes
@pytest.mark.parametrize("options", [([2], [], [0], [1], False), ([3, 2, 3], [2], [1], [1], True)], ids=str)
def test_max_pool3d(layout, dtype, options):
    x = image(layout, 3, dtype)
    check_held(aten.max_pool3d_with_indices, x, *options)
    y, indices = aten.max_pool3d_with_indices(x, *options)
    check_held(aten.max_pool3d_with_indices_backward, y + 1, x, *options, indices)
    check_held(
        aten.max_pool3d_with_indices.out, x, *options,
        out=torch.empty(0, dtype=dtype), indices=torch.empty(0, dtype=torch.int64),
    )  # fmt: skip
    check_held(
        aten.max_pool3d_with_indices_backward.grad_input, y + 1, x, *options, indices,
        grad_input=torch.empty(0, dtype=dtype),
    )  # fmt: skip


@images
def test_max_unpool(layout):
    x = image(layout, 2)
    y, indices = F.max_pool2d(x, 2, return_indices=True)
    check_held(aten.max_unpool2d, y, indices, [6, 6])
    check_held(aten.max_unpool2d, y, indices, [7, 8])
    check_held(aten.max_unpool2d.out, y, indices, [6, 6], out=torch.empty(0))
    x = image(layout, 3)
    y, indices = F.max_pool3d(x, 2, return_indices=True)
    check_held(aten.max_unpool3d, y, indices, [6, 6, 6], [2, 2, 2], [0, 0, 0])
    check_held(aten.max_unpool3d.out, y, indices, [6, 6, 6], [2, 2, 2], [0, 0, 0], out=torch.empty(0))


@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "strided", "sample"])
def test_fractional_max_pool3d(layout):
    x = image(layout, 3)
    samples = torch.rand(2 if x.dim() == 5 else 1, 4, 3)
    y, indices = aten.fractional_max_pool3d(x, [2, 2, 2], [3, 3, 3], samples)
    backward = aten.fractional_max_pool3d_backward
    check_held(backward, y + 1, x, [2, 2, 2], [3, 3, 3], indices)
    check_held(backward.grad_input, y + 1, x, [2, 2, 2], [3, 3, 3], indices, grad_input=torch.empty(0))


@images
@dtypes
def test_pads(layout, dtype):
    x = image(layout, 2, dtype)
    padding = [1, 2, 3, 0]
    out = torch.empty(0, dtype=dtype)
    check_held(aten.reflection_pad2d, x, padding)
    check_held(aten.reflection_pad2d.out, x, padding, out=out)
    y = aten.reflection_pad2d(x, padding)
    for backward in (aten.reflection_pad2d_backward, aten.replication_pad2d_backward):
        check_held(backward, y + 1, x, padding)
        check_held(backward.grad_input, y + 1, x, padding, grad_input=out)
    x, padding = image(layout, 3, dtype), [1, 2, 3, 0, 1, 0]
    y = aten.replication_pad3d(x, padding)
    check_held(aten.replication_pad3d_backward, y + 1, x, padding)
    check_held(aten.replication_pad3d_backward.grad_input, y + 1, x, padding, grad_input=out)


@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "strided", "empty"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@spatials
@pytest.mark.parametrize("mode", [0, 1])
def test_grid_sampler(layout, dtype, spatial, mode):
    x = image(layout, spatial, dtype)
    grid = (torch.rand(x.shape[0], *[5] * (spatial - 1), 3, spatial) * 2.4 - 1.2).to(dtype)
    forward, backward = (getattr(aten, f"grid_sampler_{spatial}d{suffix}") for suffix in ("", "_backward"))
    for padding in (0, 1, 2):
        check_held(forward, x, grid, mode, padding, False)
        y = forward(x, grid, mode, padding, False)
        for mask in ([True, True], [False, True]):
            check_held(backward, y + 1, x, grid, mode, padding, False, mask)
    if spatial == 2:
        check_held(forward, x, grid, 2, 0, True)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int64], ids=str)
@images
def test_shuffles(layout, dtype):
    x = image(layout, 2, dtype)
    check_held(aten.pixel_shuffle, x, 2)
    check_held(aten.pixel_unshuffle, x, 3)
    if x.numel() > 0:
        check_held(aten.channel_shuffle, x, 2)
        check_held(aten.native_channel_shuffle, x, 2)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("by", ["lengths", "offsets"])
@pytest.mark.parametrize("index", [torch.int64, torch.int32], ids=str)
def test_segments(reduce, by, index):
    x = torch.randn(6, 3)
    segments = {by: torch.tensor([2, 0, 4] if by == "lengths" else [0, 2, 2, 6], dtype=index)}
    for data in (x, torch.stack([x, x], -1)[..., 0]):
        check_held(aten.segment_reduce, data, reduce, **segments, initial=1)
        y = aten.segment_reduce(x, reduce, **segments, initial=1)
        check_held(aten._segment_reduce_backward, y + 1, y, data, reduce, **segments, initial=1)
    rows = torch.randn(2, 6)
    by_row = {"lengths": torch.tensor([[2, 4], [1, 5]], dtype=index)}
    check_held(aten.segment_reduce, rows, reduce, **by_row, axis=1)


def test_against_the_definition():
    x = torch.randn(1, 2, 6, 6, dtype=torch.float64)
    y = F.adaptive_avg_pool2d(x.to("accel"), 3).cpu()
    torch.testing.assert_close(y, x.reshape(1, 2, 3, 2, 3, 2).mean((3, 5)))
    y = F.pixel_shuffle(x.repeat(1, 2, 1, 1).to("accel"), 2).cpu()
    assert torch.equal(y[0, 0, 1::2, ::2], x[0, 0])


def test_refused():
    x = torch.randn(2, 4, 6, 6)
    check_refused(aten._adaptive_avg_pool2d, x[0, 0], [2, 2])
    check_refused(aten.max_pool3d_with_indices, x, [3], [1], [2], [1], False)
    check_refused(aten.max_pool3d_with_indices, x, [9], [1], [0], [1], False)
    check_refused(aten.pixel_shuffle, x, 3)
    check_refused(aten.pixel_unshuffle, x, 5)
    check_refused(aten.channel_shuffle, x, 3)
    check_refused(aten.reflection_pad2d, x, [6, 0, 0, 0])
    check_refused(aten.reflection_pad2d, x, [1, 0, 0])
    check_refused(aten.replication_pad2d_backward, x, x, [1, 0, 0, 0])
    check_refused(aten.grid_sampler_2d, x, torch.zeros(2, 3, 3, 3), 0, 0, False)
    check_refused(aten.grid_sampler_2d, x, torch.zeros(2, 3, 3, 2).double(), 0, 0, False)
    check_refused(aten.segment_reduce, x, "sum")
    check_refused(aten.segment_reduce, x, "sum", lengths=torch.tensor([1.0, 1]))
    check_refused(aten.max_unpool2d, x, torch.zeros(2, 4, 6, 5).long(), [12, 12])
    with torch.no_grad():
        torch.use_deterministic_algorithms(True)
        try:
            check_refused(aten.max_unpool2d, x, torch.zeros(2, 4, 6, 6).long(), [12, 12])
        finally:
            torch.use_deterministic_algorithms(False)
