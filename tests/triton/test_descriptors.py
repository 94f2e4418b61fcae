"""Tensor descriptors made on the host, as arguments of kernels: on accel, and on NumPy arrays."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from expecttest import assert_expected_inline
from triton.tools.tensor_descriptor import TensorDescriptor

from torch_accel import sanitizer
from torch_accel.testing import hold_stream
from torch_accel.triton.interpret.descriptor import Descriptor
from torch_accel.triton.interpret.engine import KernelFault
from torch_accel.triton.interpret.launch import launch


@triton.jit
def double_kernel(source, target, B: tl.constexpr):
    at = [tl.program_id(0) * B, 0]
    target.store(at, source.load(at) * 2)


@triton.jit
def round_trip_kernel(source, target, extra, n):
    block = source.load([0] * len(source.block_shape))
    target.store([0] * len(target.block_shape), block + extra * n)


@triton.jit
def sizes_kernel(described, out):
    for d in tl.static_range(3):
        tl.store(out + d, described.shape[d])
        tl.store(out + 3 + d, described.strides[d])


@triton.jit
def gather_kernel(source, rows, out, B: tl.constexpr):
    found = source.gather(tl.load(rows + tl.arange(0, 8)), 4)
    tl.store(out + tl.arange(0, 8)[:, None] * B + tl.arange(0, B)[None, :], found)


@triton.jit
def sum_kernel(target, value):
    target.atomic_add([0, 0], tl.full([2, 4], 1.0, tl.float32) * value)


@triton.jit
def pair_kernel(described, B: tl.constexpr):
    described[1].store([0, 0], described[0].load([0, 0]) + described[2])


described = TensorDescriptor.from_tensor


@pytest.fixture(autouse=True)
def driver(request):
    """The tests on NumPy arrays need none."""
    if "arrays" not in request.node.name:
        request.getfixturevalue("accel")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.float64])
@pytest.mark.parametrize("shape", [(8, 16), (10, 16), (1, 32)])
def test_blocks_come_and_go(shape, dtype):
    x = torch.arange(shape[0] * shape[1]).reshape(shape).remainder(50).to(dtype)
    out = torch.zeros(shape, dtype=dtype, device="accel")
    grid = (triton.cdiv(shape[0], 4),)
    double_kernel[grid](described(x.to("accel"), [4, 16]), described(out, [4, 16]), B=4)
    expected = x * 2
    expected[:, 16:] = 0  # columns that no block has
    assert torch.equal(out.cpu(), expected)


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_ranks_and_other_arguments_behind(rank):
    shape = (3, 2, 2, 2, 4)[-rank:]
    block = [4, 2, 2, 2, 4][-rank:]
    x = torch.randn(shape, device="accel")
    out = torch.empty_like(x)
    round_trip_kernel[(1,)](described(x, block), described(out, block), 0.5, 3)
    assert torch.equal(out, x + 1.5)


@pytest.mark.parametrize(("padding", "expected"), [("zero", 0.0), ("nan", float("nan"))])
def test_padding(padding, expected):
    x = torch.ones(3, 4, device="accel")
    out = torch.full((4, 8), 7.0, device="accel")
    double_kernel[(1,)](described(x, [4, 8], padding), described(out, [4, 8]), B=4)
    wanted = torch.full((4, 8), expected)
    wanted[:3, :4] = 2
    torch.testing.assert_close(out.cpu(), wanted, equal_nan=True, rtol=0, atol=0)


def test_a_view_has_its_own_sizes_and_strides():
    whole = torch.arange(12.0 * 8).reshape(12, 8).to("accel")
    out = torch.zeros(6, 4, device="accel")
    every_other = TensorDescriptor(whole[1:, 4:], [6, 4], [16, 1], [2, 4])
    double_kernel[(3,)](every_other, described(out, [2, 4]), B=2)
    assert torch.equal(out.cpu(), torch.arange(96.0).reshape(12, 8)[1::2, 4:] * 2)


def test_sizes_and_strides_are_known_in_the_kernel():
    x = torch.zeros(2, 3, 8, device="accel")
    out = torch.zeros(6, dtype=torch.int64, device="accel")
    sizes_kernel[(1,)](described(x, [1, 2, 8]), out)
    assert out.tolist() == [2, 3, 8, 24, 8, 1]


def test_rounding_to_tf32():
    x = torch.full((4, 8), 1 + 2**-11 + 2**-20).to("accel")
    out = torch.zeros(4, 8, device="accel")
    double_kernel[(1,)](TensorDescriptor.from_tensor(x, [4, 8], "zero", True), described(out, [4, 8]), B=4)
    assert torch.equal(out.cpu(), torch.full((4, 8), 2 + 2**-9))


def test_rows_by_index():
    x = torch.randn(20, 16)
    rows = torch.tensor([3, 19, 0, 0, 7, 20, 5, 1], dtype=torch.int32)
    out = torch.empty(8, 8, device="accel")
    gather_kernel[(1,)](described(x.to("accel"), [1, 8]), rows.to("accel"), out, B=8)
    expected = torch.cat([x, torch.zeros(1, 16)])[rows.long(), 4:12]
    assert torch.equal(out.cpu(), expected)


def test_an_atomic_sum():
    out = torch.zeros(2, 4, device="accel")
    sum_kernel[(10,)](described(out, [2, 4]), 0.5)
    assert torch.equal(out.cpu(), torch.full((2, 4), 5.0))


def test_in_a_tuple():
    x, out = torch.ones(2, 4, device="accel"), torch.zeros(2, 4, device="accel")
    pair_kernel[(1,)]((described(x, [2, 4]), described(out, [2, 4]), 3.0), B=1)
    assert torch.equal(out.cpu(), torch.full((2, 4), 4.0))


def test_it_is_copied_at_the_call(queued):
    x, out = torch.ones(4, 8, device="accel"), torch.zeros(4, 8, device="accel")
    source, target = described(x, [4, 8]), described(out, [4, 8])
    double_kernel[(1,)](source, target, B=4)
    out.zero_()
    torch.accel.synchronize()
    with hold_stream():
        double_kernel[(1,)](source, target, B=4)
        source.shape, source.strides, source.base = [1, 1], [0, 0], torch.zeros(4, 8, device="accel")
        del x
    assert torch.equal(out.cpu(), torch.full((4, 8), 2.0))


def test_blocks_are_contiguous_in_the_code():
    """The last stride is 1, so that no lane has an address of its own."""
    x = torch.ones(4, 16, device="accel")
    kernel = double_kernel.warmup(described(x, [4, 16]), described(x, [4, 16]), B=4, grid=(1,))
    assert "gather" not in kernel.asm["llir"] and "scatter" not in kernel.asm["llir"]


def test_a_tensor_elsewhere_is_named():
    x = torch.ones(4, 8, device="accel")
    with pytest.raises(ValueError) as error:
        double_kernel[(1,)](described(x, [4, 8]), described(x.cpu(), [4, 8]), B=4)
    assert_expected_inline(
        str(error.value),
        """accel: argument 'target' of kernel 'double_kernel' is a tensor on cpu, and the kernel runs on accel:0; move it there with .to('accel:0')""",
    )


def test_another_argument_in_its_place():
    x = torch.ones(4, 8, device="accel")
    kernel = double_kernel.warmup(described(x, [4, 8]), described(x, [4, 8]), B=4, grid=(1,))
    with pytest.raises(TypeError) as error:
        kernel[(1, 1, 1)](described(x, [4, 8]), x, 4)
    assert_expected_inline(
        str(error.value),
        """accel: argument 'target' of kernel 'double_kernel' is a Tensor, expected a TensorDescriptor of this rank (tensordesc<fp32[4, 8]>)""",
    )
    strided = described(x, [4, 8])
    strided.strides = [8, 2]
    with pytest.raises(ValueError) as error:
        kernel[(1, 1, 1)](strided, strided, 4)
    assert_expected_inline(
        str(error.value),
        """accel: argument 'source' of kernel 'double_kernel' is a descriptor whose last stride is 2, expected 1""",
    )
    with pytest.raises(TypeError, match="'source' of kernel 'double_kernel' is a TensorDescriptor, expected a Tensor"):
        kernel[(1, 1, 1)](described(x[0], [8]), described(x, [4, 8]), 4)


def test_the_sanitizer_sees_what_a_descriptor_reaches(queued):
    """Every second row only: those between are free for another stream."""
    whole, out = torch.zeros(8, 8, device="accel"), torch.zeros(4, 8, device="accel")
    rows = [TensorDescriptor(whole[first:], [4, 8], [16, 1], [4, 8]) for first in (0, 1)]
    target = described(out, [4, 8])
    double_kernel[(1,)](rows[0], target, B=4)
    side = torch.accel.Stream()
    side.wait_stream(torch.accel.current_stream())
    with sanitizer.enabled():
        double_kernel[(1,)](target, rows[0], B=4)
        with torch.accel.stream(side):
            double_kernel[(1,)](rows[1], rows[1], B=4)
            with pytest.raises(RuntimeError, match="double_kernel"):
                double_kernel[(1,)](rows[0], rows[1], B=4)
    torch.accel.synchronize()


def test_a_graph_replays_it():
    x, out = torch.ones(4, 8, device="accel"), torch.zeros(4, 8, device="accel")
    double_kernel[(1,)](described(x, [4, 8]), described(out, [4, 8]), B=4)
    graph = torch.accel.AccelGraph()
    with torch.accel.graph(graph):
        double_kernel[(1,)](described(x, [4, 8]), described(x, [4, 8]), B=4)
    graph.replay()
    graph.replay()
    assert torch.equal(x.cpu(), torch.full((4, 8), 4.0))


# ---- On NumPy arrays


@pytest.mark.parametrize("level", ["ttir", "tile", "machine"])
@pytest.mark.parametrize(("padding", "expected"), [("zero", 0.0), ("nan", np.nan)])
def test_arrays(level, padding, expected):
    x = np.arange(60, dtype=np.float32).reshape(10, 6)
    y = np.full((12, 8), 7, np.float32)
    from_array = Descriptor.from_array
    launch(double_kernel, (3,), from_array(x, [4, 8], padding), from_array(y, [4, 8]), B=4, level=level)
    wanted = np.full((12, 8), expected, np.float32)
    wanted[:10, :6] = 2 * x
    np.testing.assert_array_equal(y, wanted)


def test_arrays_of_bits_and_sizes_beyond_the_array():
    x, y = np.full((2, 8), 0x3FC0, np.uint16), np.zeros((2, 8), np.uint16)
    signature = dict.fromkeys(("source", "target"), "tensordesc<bf16[2, 8]>")
    launch(double_kernel, (1,), *(Descriptor.from_array(a, [2, 8]) for a in (x, y)), B=2, signature=signature)
    assert (y == 0x4040).all()
    with pytest.raises(KernelFault, match="byte 32 of 'source', which has 32"):
        launch(
            double_kernel,
            (2,),
            Descriptor(x, [3, 8], [8, 1], [2, 8]),
            Descriptor.from_array(y, [2, 8]),
            B=2,
            signature=signature,
        )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (([4, 8], [8, 1], [8]), "shape (4, 8) has strides (8, 1) and blocks of (8,); give as many of each"),
        (([4, 8], [1, 4], [4, 8]), "a descriptor's last stride is 4, expected 1"),
        (([8], [1], [8], "one"), "a descriptor's padding is 'one', expected 'zero' or 'nan'"),
    ],
)
def test_descriptors_of_arrays_are_checked(arguments, text):
    with pytest.raises(ValueError) as error:
        Descriptor(np.zeros(32), *arguments)
    assert text in str(error.value)
