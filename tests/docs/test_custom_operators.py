"""The operator in C++ of docs/custom_operators.md: compiled as written there, with nothing but what the package ships."""

import re
from pathlib import Path

import pytest
import torch

import torch_accel
from tests.docs.markdown import ROOT, blocks
from torch_accel.testing import fallback_mode, hold_stream, wait_report


def source():
    """All of the page's C++, which is one file."""
    return "\n".join(b.text for b in blocks(ROOT / "docs/custom_operators.md") if b.language == "cpp")


@pytest.fixture(scope="module")
def squared_relu(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    (folder / "squared_relu.cpp").write_text(source())
    torch_accel.utils.load(
        "demo", str(folder / "squared_relu.cpp"), build_directory=str(folder), extra_cflags=["-O1", "-Werror"]
    )
    return torch.ops.demo.squared_relu


def test_values(squared_relu):
    x = torch.linspace(-3, 3, 10_007).to("accel")
    assert torch.equal(squared_relu(x).cpu(), x.cpu().relu() ** 2)
    assert torch.equal(squared_relu(x[::2].view(-1, 2).t()).cpu(), x.cpu()[::2].view(-1, 2).t().relu() ** 2)
    assert squared_relu(x[:0]).shape == (0,)


def test_gradients(squared_relu):
    x = torch.tensor([-1.0, 0.5, 2.0], device="accel", requires_grad=True)
    (first,) = torch.autograd.grad(squared_relu(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert first.tolist() == [0, 1, 4] and second.tolist() == [0, 2, 2]


def test_shape_without_data(squared_relu):
    assert squared_relu(torch.empty(2, 3, device="meta")).shape == (2, 3)


def test_errors_rise_at_the_call(squared_relu):
    with pytest.raises(RuntimeError, match="demo::squared_relu on accel expects float32, but got Double"):
        squared_relu(torch.ones(2, dtype=torch.float64, device="accel"))


def test_waits_for_nothing(squared_relu):
    x = torch.ones(5, device="accel")
    torch.accel.synchronize()
    before = wait_report()
    with fallback_mode("error"), hold_stream():
        y = squared_relu(x)
        assert not torch.accel.current_stream().query()
        assert wait_report() == before
    assert y.tolist() == [1] * 5


def test_flags_are_the_kernels_to_read(squared_relu):
    x = torch.ones(2, device="accel")
    assert not torch.ops.demo.is_packed(x)
    torch.accel.set_tensor_flags(x, {"packed": False})
    assert not torch.ops.demo.is_packed(x)
    torch.ops.demo.mark_packed(x)
    assert torch.accel.tensor_flags(x) == {"packed": True} and torch.ops.demo.is_packed(x.detach())
    assert not torch.ops.demo.is_packed(x + 1)


def test_the_shipped_headers_include_only_shipped_headers():
    (folder,) = map(Path, torch_accel.utils.include_paths())
    headers = sorted(folder.rglob("*.h"))
    assert folder / "torch_accel/aten/launch.h" in headers
    for header in headers:
        for name in re.findall(r'#include "([^"]+)"', header.read_text()):
            assert (header.parent / name).resolve() in headers, f"{header.name} includes {name}"


@pytest.mark.full
def test_an_extension_of_a_setup_py(tmp_path, script):
    """The same source as an extension module, in a process that imports torch and it alone."""
    module = '#include <Python.h>\nstatic PyModuleDef d{PyModuleDef_HEAD_INIT, "demo_ext"};\n'
    module += "PyMODINIT_FUNC PyInit_demo_ext() { return PyModule_Create(&d); }\n"
    (tmp_path / "demo.cpp").write_text(source() + module)
    (tmp_path / "setup.py").write_text(
        "from setuptools import setup\n"
        "from torch.utils.cpp_extension import BuildExtension\n"
        "from torch_accel.utils import AccelExtension\n"
        "setup(name='demo_ext', ext_modules=[AccelExtension('demo_ext', ['demo.cpp'])],\n"
        "      cmdclass={'build_ext': BuildExtension}, script_args=['-q', 'build_ext', '--inplace'])\n"
    )
    script(f"import os, runpy; os.chdir({str(tmp_path)!r}); runpy.run_path('setup.py')", timeout=300)
    script(
        f"import sys, torch; sys.path.insert(0, {str(tmp_path)!r}); import demo_ext\n"
        "assert torch.ops.demo.squared_relu(torch.full((2,), 3.0, device='accel')).tolist() == [9, 9]"
    )
