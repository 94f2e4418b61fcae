"""Triton's knobs that a backend has a part in: dumps, overrides, the cache, debugging."""

import contextlib
import re
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from expecttest import assert_expected_inline

from torch_accel.triton.ir.core import IRError

pytestmark = pytest.mark.usefixtures("accel")

STAGES = ("ttir", "tile", "machine", "llir", "hsaco")


def sum_kernel(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n) + 3.0, mask=i < n)


@triton.jit
def checked_kernel(out, n):
    tl.device_assert(n > 0, "n is not positive")
    tl.store(out, n)


def run(**options):
    """What the kernel gives of ones, made anew, so that no process' cache has it."""
    x, out = torch.ones(8, device="accel"), torch.zeros(8, device="accel")
    kernel = triton.jit(sum_kernel)[(1,)](x, out, 8, B=8, **options)
    assert len(set(out.tolist())) == 1
    return out[0].item(), kernel


@pytest.fixture
def knobs(monkeypatch, tmp_path):
    """``triton.knobs``, with folders of the test's own."""
    knobs = triton.knobs
    monkeypatch.setattr(knobs.compilation, "always_compile", True)
    for name in ("dump", "override"):
        monkeypatch.setattr(knobs.cache, f"{name}_dir", str(tmp_path / name))
    return knobs


@contextlib.contextmanager
def overridden(knobs, monkeypatch, tmp_path, stage, change):
    """With one stage's file in the override folder, changed."""
    with monkeypatch.context() as patch:
        patch.setattr(knobs.compilation, "dump_ir", True)
        run()
    (dumped,) = (tmp_path / "dump").rglob(f"*.{stage}")
    place = tmp_path / "override" / dumped.relative_to(tmp_path / "dump")
    place.parent.mkdir(parents=True)
    place.write_bytes(change(dumped.read_bytes()))
    with monkeypatch.context() as patch:
        patch.setattr(knobs.compilation, "override", True)
        yield place


def test_every_stage_is_dumped(knobs, monkeypatch, tmp_path):
    monkeypatch.setattr(knobs.compilation, "dump_ir", True)
    _, kernel = run()
    for stage in STAGES:
        (file,) = (tmp_path / "dump").rglob(f"sum_kernel.{stage}")
        data = file.read_bytes() if stage == "hsaco" else file.read_text()
        assert data == kernel.asm[stage]


@pytest.mark.parametrize(
    ("stage", "old", "new"),
    [
        ("ttir", b"3.000000e+00", b"7.000000e+00"),
        ("tile", b"elementwise.addf", b"elementwise.subf"),
        ("machine", b"elementwise.addf", b"elementwise.mulf"),
        ("llir", b"fadd <", b"fsub <"),
    ],
)
def test_the_text_of_a_stage_is_overridden(knobs, monkeypatch, tmp_path, capsys, stage, old, new):
    def change(text):
        assert old in text
        return text.replace(old, new)

    expected = {"ttir": 8.0, "tile": -2.0, "machine": 3.0, "llir": -2.0}[stage]
    with overridden(knobs, monkeypatch, tmp_path, stage, change) as file:
        assert run()[0] == expected
        assert f"Overriding kernel with file {file}" in capsys.readouterr().out
    assert run(ir_override=str(file))[0] == expected
    assert run()[0] == 4.0


def test_an_object_is_overridden(knobs, monkeypatch, tmp_path):
    _, kernel = run()
    text = kernel.asm["llir"].replace("fadd <", "fsub <")
    from torch_accel.triton.codegen import llvm

    with overridden(knobs, monkeypatch, tmp_path, "hsaco", lambda _: llvm.assemble(text, llvm.target())):
        assert run()[0] == -2.0


def refused(knobs, monkeypatch, tmp_path, stage, change, error):
    with overridden(knobs, monkeypatch, tmp_path, stage, change), pytest.raises(error) as raised:
        run()
    return str(raised.value)


def test_what_cannot_be_read_is_an_error(knobs, monkeypatch, tmp_path):
    assert_expected_inline(
        refused(knobs, monkeypatch, tmp_path, "tile", lambda text: text.replace(b"load(", b"loud("), SyntaxError),
        """accel: the tile IR, line 10: expected an operator instead of 'loud' at '(%6, mask=%2) : tile<8xf32>'""",
    )


def test_another_number_of_arguments_is_an_error(knobs, monkeypatch, tmp_path):
    def change(text):
        return re.sub(rb", %n: i32\) \{.*\} \{", b", %n: i32, %m: i32) {", text)

    assert_expected_inline(
        refused(knobs, monkeypatch, tmp_path, "tile", change, IRError),
        """accel: 'sum_kernel' has 4 arguments, and launches pass 3""",
    )


def test_a_file_that_is_no_object_is_an_error(knobs, monkeypatch, tmp_path):
    assert_expected_inline(
        refused(knobs, monkeypatch, tmp_path, "hsaco", lambda _: b"not an object", ValueError),
        """accel: the object of a kernel begins with b'not ', expected an ELF file""",
    )


def test_the_launcher_knows_what_an_override_reads_and_writes(knobs, monkeypatch, tmp_path):
    with overridden(knobs, monkeypatch, tmp_path, "tile", lambda text: text.replace(b"splat(%x)", b"splat(%out)")):
        result, kernel = run()
    assert result == 3.0
    assert kernel.metadata.accesses == [0, 3, 0]


def test_the_cache_is_asked_or_not(knobs, monkeypatch):
    hits = []
    monkeypatch.setattr(knobs.compilation, "listener", lambda *, cache_hit, **rest: hits.append(cache_hit))
    run(), run()
    assert hits == [False, False]
    monkeypatch.setattr(knobs.compilation, "always_compile", False)
    run()
    assert hits == [False, False, True]


def test_only_objects_are_stored(knobs, monkeypatch, tmp_path):
    monkeypatch.setattr(knobs.cache, "dir", str(tmp_path / "cache"))
    monkeypatch.setattr(knobs.compilation, "store_binary_only", True)
    assert run()[0] == 4.0
    assert {path.suffix for path in Path(tmp_path / "cache").rglob("sum_kernel.*")} == {".hsaco", ".json", ".source"}


def test_debugging_compiles_assertions(knobs, monkeypatch, queued):
    out = torch.zeros(1, dtype=torch.int32, device="accel")
    checked_kernel[(1,)](out, 0)
    torch.accel.synchronize()
    monkeypatch.setattr(knobs.runtime, "debug", True)
    checked_kernel[(1,)](out, 0)
    with pytest.raises(torch.AcceleratorError, match="n is not positive"):
        torch.accel.synchronize()
