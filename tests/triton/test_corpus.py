"""Every kernel of the corpus: read, verified, printed and read again; both interpreters agree with each other and with NumPy or torch."""

import numpy as np
import pytest
import triton

from tests.triton.corpus import cases, modules, run_both
from torch_accel.triton.ir import lower_ttir, printer, reader, text, verify
from torch_accel.triton.ir.opcodes import ELEMENTWISE

NAMES = list(cases())


@pytest.mark.parametrize("name", NAMES)
def test_reads_before_and_after_triton_passes(name):
    """The reader knows the form, not the operators: what the passes remove is read too."""
    module = reader.read(cases()[name].ttir(passes=False))
    verify.verify_ssa(module)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("locations", [False, True])
def test_prints_what_it_reads(name, locations):
    lowered = modules(name)[1]
    shown = printer.text(lowered, locations)
    again = text.parse(shown)
    verify.verify(again)
    assert printer.text(again, locations) == shown
    kept = [[(op.name, op.location if locations else None) for op in module.walk()][1:] for module in (lowered, again)]
    assert kept[0] == kept[1]


def assert_same(got, want, rtol=0.0, type="", atol=0.0):
    """Bit for bit, but for the payload of NaN; or within ``rtol``."""
    assert got.dtype == want.dtype and got.shape == want.shape
    if type == "*bf16":
        got, want = ((array.astype(np.uint32) << 16).view(np.float32) for array in (got, want))
    if rtol:
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)
        return
    if got.dtype.kind == "f":
        both = np.isnan(got) & np.isnan(want)
        got, want = np.where(both, 0, got), np.where(both, 0, want)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", NAMES)
def test_interpreters(name):
    case = cases()[name]
    given = case.arguments()
    from_raw, from_tile = run_both(case)
    for one, other in zip(from_raw, from_tile):
        if isinstance(one, np.ndarray):
            assert one.tobytes() == other.tobytes()
    want = case.want(*given)
    assert want
    for index, array in want.items():
        assert_same(from_tile[index], np.asarray(array), case.rtol, list(case.types().values())[index], case.atol)


# What a test of this file cannot have from a kernel, with the reason.
NOT_EMITTED = {
    "arith.bitcast": "Triton emits tt.bitcast; MLIR's passes may make it",
    "arith.negf": "Triton 3.8's -x, which is 0 - x in 3.7",
    "gpu.barrier": "Triton 3.6's name of ttg.barrier",
    "ub.poison": "the value of unreachable code, which the passes remove",
    **dict.fromkeys(("tt.assert", "tt.print", "tt.int_to_ptr", "tt.ptr_to_int"), "test_faults.py"),
    "tt.extern_elementwise": "test_libdevice.py",
}


of_this_version = pytest.mark.skipif(
    not triton.__version__.startswith("3.7."), reason="the lists are of what Triton 3.7 emits"
)


@of_this_version
def test_corpus_has_every_operator_that_is_lowered():
    seen = {op.name for name in NAMES for op in modules(name)[0].walk()}
    assert seen | set(NOT_EMITTED) == lower_ttir.LOWERED
    assert not seen & set(NOT_EMITTED)


@of_this_version
def test_corpus_has_every_opcode():
    seen = {op.attributes["opcode"] for name in NAMES for op in modules(name)[1].walk() if op.name == "elementwise"}
    assert set(ELEMENTWISE) - seen == {"negf"}
