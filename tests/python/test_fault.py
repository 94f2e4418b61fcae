"""A host access to device memory ends in a crash report that names accel, the address, the block and the remedy."""

import re
import signal

import pytest
from expecttest import assert_expected_inline

ACCESS = """
def touch(address):
    return ctypes.string_at(address, 1)

touch(x.data_ptr() + 8)
"""
ENABLE = "import faulthandler; faulthandler.enable()\n"
MAKE = "import ctypes, torch\nx = torch.ones(300, device='accel')\ntorch.accel.synchronize()\n"


def normalised(text):
    return re.sub(r"0x[0-9a-f]+", "0xADDRESS", text)


@pytest.mark.parametrize(
    "order", [ENABLE + MAKE, MAKE + ENABLE, MAKE + ENABLE + ENABLE], ids=["before", "after", "twice"]
)
def test_report_with_python_stack(script, order):
    result = script(order + ACCESS, check=False)
    assert result.returncode == -signal.SIGSEGV
    report, _, stack = result.stderr.partition("Fatal Python error: Segmentation fault")
    assert_expected_inline(
        normalised(report),
        """\
torch_accel: host access to accel:0 memory at 0xADDRESS (byte 8 of a live 1536-byte block at 0xADDRESS, allocated on stream 0). Device memory cannot be touched by the host: copy it with tensor.cpu(), or view it with torch.accel.memory.numpy(tensor).
""",
    )
    assert 'File "<string>", line' in stack and " in touch" in stack


def test_report_without_faulthandler(script):
    result = script(MAKE + ACCESS, check=False)
    assert result.returncode == -signal.SIGSEGV
    assert result.stderr.startswith("torch_accel: host access to accel:0 memory at 0x")


def test_freed_block(script):
    result = script(MAKE + "address = x.data_ptr(); del x\nctypes.string_at(address, 1)", check=False)
    assert result.returncode == -signal.SIGSEGV
    assert "free" in result.stderr


def test_other_faults_are_left_alone(script):
    result = script(ENABLE + MAKE + "ctypes.string_at(8, 1)", check=False)
    assert result.returncode == -signal.SIGSEGV
    assert result.stderr.startswith("Fatal Python error: Segmentation fault") and "torch_accel:" not in result.stderr


def test_faulthandler_keeps_its_interface(script):
    script("""
        import faulthandler, sys
        original = faulthandler.enable
        import torch
        assert faulthandler.enable.__wrapped__ is original and faulthandler.enable.__doc__ == original.__doc__
        faulthandler.enable(file=sys.stderr, all_threads=False)
        assert faulthandler.is_enabled()
        faulthandler.disable()
        assert not faulthandler.is_enabled()
    """)
