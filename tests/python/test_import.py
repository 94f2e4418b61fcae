"""The package at import: both orders, the autoload policy, broken installations, and what an import costs."""

import re

import pytest
import torch
from expecttest import assert_expected_inline

# A torch whose CUDA build sees a GPU, and the autoload of torch's import run again with it.
FAKE_CUDA = """
import sys
import torch
torch.cuda.is_available = lambda: True
torch._import_device_backends()
torch._import_device_backends()
registered = "torch_accel" in sys.modules
assert registered == hasattr(torch, "accel")
print(registered)
"""


@pytest.mark.parametrize(
    "first", ["import torch", "import torch_accel", "import torch_accel, torch", "import torch.nn"]
)
def test_import_orders(script, first):
    script(f"""
        {first}
        import sys, torch
        assert torch.accel is sys.modules["torch_accel"]
        import torch_accel
        assert torch.accel is torch_accel
        assert torch_accel.synchronize and torch.device("accel", 0).type == "accel"
        assert (torch.ones(2, device="accel") + 1).tolist() == [2, 2]
    """)


def test_torch_accel_is_torch_dot_accel(script):
    script("""
        import importlib, torch, torch_accel
        import torch.accel.memory as memory
        assert memory is torch_accel.memory and memory.__spec__.name == "torch_accel.memory"
        import torch.accel
        assert torch.accel is torch_accel is torch.get_device_module("accel")
        from torch.accel import random
        assert random is torch_accel.random
        from torch.accel.streams import Stream
        assert Stream is torch_accel.Stream
        import torch.accel.testing.op_db as late
        import torch_accel.testing.op_db
        assert late is torch_accel.testing.op_db
        assert importlib.import_module("torch.accel.amp") is torch_accel.amp
    """)


def test_no_such_submodule(script):
    result = script("import torch.accel.nothing", check=False)
    assert "ModuleNotFoundError: No module named 'torch_accel.nothing'" in result.stderr


def test_reload_registers_once(script):
    script("import importlib, torch_accel; assert importlib.reload(torch_accel) is torch_accel")


def test_torch_autoload_disabled(script):
    script(
        """
        import sys, torch
        assert not hasattr(torch, "accel") and "torch_accel" not in sys.modules
        import torch_accel
        assert torch.accel is torch_accel
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )


def test_accel_autoload_0(script):
    script(
        """
        import sys, torch
        assert not hasattr(torch, "accel") and "torch_accel" not in sys.modules
        import torch_accel
        assert torch.accel is torch_accel
        """,
        ACCEL_AUTOLOAD="0",
    )


def test_without_the_package_accel_is_no_device(script, tmp_path):
    """The texts are torch's, which knows of no package by then; onto the CPU a checkpoint loads all the same."""
    torch.save(torch.arange(3.0, device="accel"), tmp_path / "x.pt")
    result = script(
        f"""
        import torch
        for use in (lambda: torch.device("accel"), lambda: torch.ones(1).to("accel:0"), lambda: torch.load({str(tmp_path / "x.pt")!r})):
            try:
                use()
            except RuntimeError as error:
                print(error)
        assert torch.load({str(tmp_path / "x.pt")!r}, map_location="cpu").tolist() == [0, 1, 2]
        import torch_accel
        assert torch.device("accel", 0) == torch.load({str(tmp_path / "x.pt")!r}).device
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert_expected_inline(
        result.stdout,
        """\
Expected one of cpu, cuda, ipu, xpu, mkldnn, opengl, opencl, ideep, hip, ve, fpga, maia, xla, lazy, vulkan, mps, meta, hpu, mtia, privateuseone device type at start of device string: accel
Expected one of cpu, cuda, ipu, xpu, mkldnn, opengl, opencl, ideep, hip, ve, fpga, maia, xla, lazy, vulkan, mps, meta, hpu, mtia, privateuseone device type at start of device string: accel
don't know how to restore data location of torch.storage.UntypedStorage (tagged with accel:0)
""",
    )


def test_accel_autoload_invalid(script):
    result = script("import torch", check=False, ACCEL_AUTOLOAD="yes")
    assert result.returncode != 0
    assert "ValueError: ACCEL_AUTOLOAD='yes': accel expects 0 or 1; unset it to let torch_accel decide" in result.stderr


def test_other_accelerator_present(script):
    result = script(FAKE_CUDA, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert result.stdout == "False\n"
    assert_expected_inline(
        result.stderr,
        """\
cuda is present, so `import torch` does not register accel. \
ACCEL_AUTOLOAD=1 or `import torch_accel` registers it; ACCEL_AUTOLOAD=0 silences this line.
""",
    )


@pytest.mark.parametrize("environment", [{"ACCEL_AUTOLOAD": "1"}, {"ACCEL_DEVICES": "2"}, {"ACCEL_DEVICES": "0"}])
def test_other_accelerator_overruled(script, environment):
    result = script(FAKE_CUDA, TORCH_DEVICE_BACKEND_AUTOLOAD="0", **environment)
    assert (result.stdout, result.stderr) == ("True\n", "")


def test_other_accelerator_and_explicit_import(script):
    result = script("import torch_accel" + FAKE_CUDA, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert (result.stdout, result.stderr) == ("True\n", "")


def test_other_accelerator_check_leaves_the_environment(script):
    script(
        """
        import os, torch, _torch_accel_autoload as entry
        before = dict(os.environ)
        torch.cuda.is_available = lambda: os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] == "1"
        assert entry._other_accelerator() == "cuda"
        assert dict(os.environ) == before
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )


def test_other_privateuse1_backend(script):
    code = """
        import sys, torch
        torch.utils.rename_privateuse1_backend("npu")
        torch._import_device_backends()
        assert "torch_accel" not in sys.modules
        import torch_accel
    """
    result = script(code, check=False, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert result.stderr.startswith("npu is present, so `import torch` does not register accel.")
    assert_expected_inline(
        result.stderr.splitlines()[-1],
        """\
ImportError: torch_accel: this process already has the PrivateUse1 backend 'npu', and torch has room for one, so accel \
cannot be registered. Uninstall or disable one of the two (ACCEL_AUTOLOAD=0 disables accel's autoload).""",
    )


def test_wrong_torch(script):
    code = "import torch; torch.__version__ = '2.12.1+cpu'; import torch_accel"
    result = script(code, check=False, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert_expected_inline(
        result.stderr.splitlines()[-1],
        """\
ImportError: torch_accel 2.13.0 is built for torch 2.13, but torch 2.12.1+cpu is installed. \
Run: pip install 'torch==2.13.*'""",
    )


BROKEN_LIBRARY = """
import sys
from importlib.abc import MetaPathFinder

class Broken(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "torch_accel._C":
            raise ImportError("wrapper") from OSError("libgone.so.1: cannot open shared object file")

sys.meta_path.insert(0, Broken())
"""
BROKEN_LIBRARY_TEXT = (
    "ImportError: torch_accel: the native library of accel cannot be loaded: "
    "OSError: libgone.so.1: cannot open shared object file. Reinstall it for this Python and torch 2.13: "
    "pip install --force-reinstall --no-deps 'torch-accel-sim==2.13.*'"
)


@pytest.mark.parametrize("line", ["import torch", "import torch_accel"])
def test_broken_native_library(script, line):
    result = script(BROKEN_LIBRARY + line, check=False)
    assert result.returncode != 0
    assert BROKEN_LIBRARY_TEXT in result.stderr.splitlines()


def test_broken_native_library_leaves_torch_usable(script):
    code = BROKEN_LIBRARY + (
        "import torch\n"
        "for _ in range(2):\n"
        "    try:\n"
        "        import torch_accel\n"
        "    except ImportError as error:\n"
        "        print(f'ImportError: {error}')\n"
        "assert torch.ones(2).sum() == 2 and not hasattr(torch, 'accel')\n"
    )
    result = script(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert result.stdout.splitlines() == [BROKEN_LIBRARY_TEXT] * 2


def test_import_is_light(script):
    """It starts no thread, opens no device, and loads no package but torch's small ones, NumPy and Python's own."""
    script(
        """
        import os, sys
        import torch
        def tasks():
            return len(os.listdir("/proc/self/task"))
        modules, threads = set(sys.modules), tasks()
        import torch_accel
        assert tasks() == threads, (tasks(), threads)
        assert not torch_accel.is_initialized()
        new = set(sys.modules) - modules
        for name in ("torch._dynamo", "torch._inductor", "torch.distributed.rpc"):
            assert name not in new, name
        foreign = {name.split(".")[0] for name in new} - sys.stdlib_module_names
        assert foreign <= {"torch", "torch_accel", "numpy"}, foreign
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )


def test_import_loads_no_compiler(script):
    script("""
        import sys, torch
        assert hasattr(torch, "accel")
        assert not [m for m in sys.modules if m.startswith(("torch._dynamo", "torch._inductor"))]
    """)


def test_generated_methods():
    x = torch.ones(2).accel()
    assert x.is_accel and x.device == torch.device("accel", 0)
    assert not torch.ones(2).is_accel
    linear = torch.nn.Linear(2, 2).accel()
    assert all(p.is_accel for p in linear.parameters())
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2), torch.ones(1)]).accel()
    assert packed.is_accel and packed.data.is_accel
    storage = torch.ones(2).untyped_storage().accel()
    assert storage.is_accel


def test_generated_methods_take_a_device(two_devices):
    two_devices("""
        import torch
        x = torch.ones(2)
        for index in (0, 1):
            moved = x.accel(index)
            assert moved.device == torch.device("accel", index) == x.accel(f"accel:{index}").device
            assert moved.accel(index) is moved and moved.accel(1 - index).device.index == 1 - index
            with torch.accel.device(index):
                assert x.accel().device.index == index
            assert x.pin_memory().accel(index, non_blocking=True).tolist() == [1, 1]
            assert torch.nn.Linear(2, 2).accel(index).weight.device.index == index
            assert x.untyped_storage().accel(index).device.index == index
            packed = torch.nn.utils.rnn.pack_sequence([x]).accel(index)
            assert packed.data.device.index == index
        try:
            x.accel(2)
        except RuntimeError as error:
            assert "accel" in str(error) and "2" in str(error), error
        else:
            raise AssertionError
    """)


def test_version_is_torchs():
    import torch_accel

    assert re.fullmatch(r"\d+\.\d+\.\d+", torch_accel.__version__)
    assert torch.__version__.startswith(torch_accel.__version__.rsplit(".", 1)[0] + ".")


def test_public_names_exist():
    import torch_accel

    for name in torch_accel.__all__:
        assert getattr(torch_accel, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        torch_accel.nothing  # noqa: B018


def test_exit_with_everything_alive(script):
    result = script("""
        import torch
        x = torch.ones(1000, device="accel", requires_grad=True)
        s = torch.accel.Stream()
        s.wait_stream(torch.accel.current_stream())
        with torch.accel.stream(s):
            y = (x * 2).sum()
            y.backward()
            torch.accel._sleep(50_000_000)
        e = s.record_event()
        p = torch.ones(10).pin_memory()
        hold = torch.accel.testing.hold_stream()
        hold.__enter__()
        z = torch.zeros(4, device="accel")
    """)
    assert (result.stdout, result.stderr) == ("", "")
