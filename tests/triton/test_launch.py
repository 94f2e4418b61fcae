"""Kernels run on NumPy arrays by ``launch``."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from tests.triton.corpus import bits, stored
from torch_accel.triton.interpret.engine import KernelFault
from torch_accel.triton.interpret.launch import launch
from torch_accel.triton.ir.core import IRError


@triton.jit
def scale(x, y, n, factor, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.device_assert(n > 0, "n is not positive")
    tl.store(y + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


@pytest.mark.parametrize("level", ["tile", "ttir"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint8])
def test_types_come_from_the_arrays(level, dtype):
    x, y = np.arange(100).astype(dtype), np.zeros(100, dtype)
    launch(scale, (4,), x, y, 100, 2, B=32, level=level)
    np.testing.assert_array_equal(y, x * 2)


def test_numbers():
    y = np.zeros(1)
    launch(scale, (1,), np.ones(1), y, 1, 1 << 40, B=1)
    assert y[0] == 1 << 40
    launch(scale, (1,), np.ones(1), y, 1, 0.1, B=1)
    assert y[0] == np.float32(0.1)


def test_stored_bits():
    x = stored(np.linspace(-3, 3, 32), torch.bfloat16)
    y = np.zeros_like(x)
    launch(scale, (1,), x, y, 32, 3.0, B=32, signature={"x": "*bf16", "y": "*bf16"})
    want = torch.from_numpy(x.view(np.int16)).view(torch.bfloat16).float() * 3
    np.testing.assert_array_equal(y, bits(want.to(torch.bfloat16)))


def test_asserts_are_checked():
    with pytest.raises(KernelFault, match="device_assert: n is not positive"):
        launch(scale, (1,), np.ones(1), np.ones(1), 0, 2, B=1)


@pytest.mark.parametrize(
    "arguments, options, error, message",
    [
        (([1.0], np.zeros(1), 1, 2), {}, TypeError, "accel: argument 'x' is a list, expected a NumPy array or a number"),
        ((np.zeros(1), np.zeros(1), 1), {}, TypeError, "accel: kernel 'scale' takes x, y, n, factor; 3 arguments given"),
        ((np.zeros(1), np.zeros(1), 1, 2), {"level": "llvm"}, ValueError, "accel: level is 'llvm', expected 'tile', 'ttir' or 'machine'"),
        ((np.zeros(1), np.zeros(4)[::2], 1, 2), {}, ValueError, "accel: buffer 'y' is not contiguous"),
    ],
)  # fmt: skip
def test_wrong_arguments(arguments, options, error, message):
    with pytest.raises(error, match=message):
        launch(scale, (1,), *arguments, B=1, **options)


def test_descriptor_arguments_are_refused():
    from torch_accel.triton import frontend
    from torch_accel.triton.ir import lower_ttir, reader

    text = frontend.ttir(copy_described, {"source": "tensordesc<fp32[4, 4]>", "out": "*fp32"}, passes=False)
    with pytest.raises(IRError, match="pass its base, shape and strides"):
        lower_ttir.lower(reader.read(text))


@triton.jit
def copy_described(source, out):
    tl.store(out + tl.arange(0, 4)[:, None] * 4 + tl.arange(0, 4)[None, :], source.load([0, 0]))


def test_importing_the_package_does_not_import_triton(script):
    script("""
        import sys
        import torch_accel, torch_accel.triton, torch_accel.triton.interpret.launch, torch_accel.triton.ir.lower_ttir
        assert "triton" not in sys.modules
    """)


def test_missing_triton_names_the_extra(script):
    script("""
        import sys
        sys.modules["triton"] = sys.modules["triton._C"] = sys.modules["triton._C.libtriton"] = None
        from torch_accel.triton import frontend
        try:
            frontend.ttir(None, {})
        except ImportError as error:
            assert "pip install 'torch-accel-sim[compile]'" in str(error)
        else:
            raise AssertionError("no error")
    """)
