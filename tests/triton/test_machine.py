"""Translation validation over the corpus: every kernel gives the same bits at every level and after every pass."""

import numpy as np
import pytest
import triton
import triton.language as tl

from tests.triton.corpus import cases, modules
from torch_accel.triton import frontend, passes
from torch_accel.triton.interpret.launch import launch
from torch_accel.triton.interpret.validate import validate
from torch_accel.triton.ir import printer, text
from torch_accel.triton.machine.ops import MACHINE

NAMES = list(cases())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fuse", [False, True], ids=["plain", "fused"])
def test_every_level_gives_the_same_bits(name, fuse):
    case = cases()[name]
    validate(modules(name)[0], case.kernel.fn.__name__, case.grid, case.arguments(), fuse=fuse)


@pytest.mark.parametrize("name", NAMES)
def test_prints_what_it_reads(name):
    module = passes.machine_ir(modules(name)[1])
    for locations in (False, True):
        shown = printer.text(module, locations, MACHINE)
        assert printer.text(text.parse(shown, MACHINE), locations, MACHINE) == shown


@triton.jit
def noisy(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    tl.device_print("v ", v)
    tl.store(y + i, v + 1, mask=i < n)


def test_launch_runs_the_machine_level():
    x, y, said = np.arange(6, dtype=np.float32), np.zeros(6, np.float32), []
    launch(noisy, (2,), x, y, 6, B=4, level="machine", say=said.append)
    np.testing.assert_array_equal(y, x + 1)
    assert said[5] == "pid (1, 0, 0) idx (1) v: 5.000000"


def test_launch_validates_when_it_is_asked_to(monkeypatch):
    monkeypatch.setenv("TRITON_ACCEL_VERIFY", "each")
    x, y, said = np.arange(6, dtype=np.float32), np.zeros(6, np.float32), []
    launch(noisy, (2,), x, y, 6, B=4, say=said.append)
    np.testing.assert_array_equal(y, x + 1)
    assert len(said) == 8


@triton.jit
def large(x, y, B: tl.constexpr):
    i, j = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    v = tl.load(x + i * B + j)
    tl.store(y + i * B + j, tl.sum(v, 0)[None, :] + tl.cumsum(v, 1))


def test_too_little_sram():
    """Triton's autotuner catches its own class and tries the next configuration."""
    import pickle

    from triton.runtime.errors import OutOfResources

    module = frontend.tile_ir(large, {"x": "*fp32", "y": "*fp32", "B": "constexpr"}, {"B": 256})
    with pytest.raises(OutOfResources) as raised:
        passes.machine_ir(module, sram=100_000)
    message = str(raised.value)
    assert "accel: kernel 'large' needs " in message
    assert " bytes of SRAM and a core has 100000; the largest buffer is buf<256x256x" in message
    assert message.endswith("Use smaller blocks.")
    assert str(pickle.loads(pickle.dumps(raised.value))) == message
