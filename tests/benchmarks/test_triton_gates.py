"""The gate of compiled Triton kernels: for two fixed instruction sets, no count exceeds its committed baseline by more than 5 %."""

import json
import platform

import pytest
import triton
from expecttest import assert_expected_inline

from benchmarks import triton_gates as gates

ROWS = {"x86-64-v3": {"add": {"instructions": 20, "gathers": 0}, "gelu": {"instructions": 106}}}


def test_worse():
    """Up to 5 % is allowed, of nothing nothing; what has no baseline is worse."""
    before = {"x86-64-v3": {"add": {"instructions": 20, "gathers": 0}, "gelu": {"instructions": 101}}}
    assert gates.worse(ROWS, before) == []
    before["x86-64-v3"]["gelu"]["instructions"] = 100
    assert gates.worse(ROWS, before) == [("x86-64-v3", "gelu", "instructions", 100, 106)]
    gather = {"x86-64-v3": {"add": {"instructions": 20, "gathers": 1}}}
    assert gates.worse(gather, before) == [("x86-64-v3", "add", "gathers", 0, 1)]
    assert len(gates.worse(ROWS, {})) == 2


def test_text():
    assert_expected_inline(
        gates.text(gates.worse(ROWS, {"x86-64-v3": {"add": ROWS["x86-64-v3"]["add"]}})),
        """\
more than 5 % above the baseline:
target     kernel           count          baseline       now
x86-64-v3  gelu             instructions          0       106
If that is meant, make it the baseline: python -m benchmarks.triton_gates --write""",
    )


def test_innermost_loops():
    """A loop is from a label to the last jump back; of nested ones the inner counts."""
    assembly = """
f:
	xorl	%eax, %eax
.LBB0_1:
	movl	$1, %ecx
.LBB0_2:                                # inner
	.p2align	4
	vmovups	32(%rsp), %ymm0
	decl	%ecx
	je	.LBB0_3
	jmp	.LBB0_2
.LBB0_3:
	incl	%eax
	jne	.LBB0_1
	retq
"""
    (loop,) = gates.innermost(assembly)
    assert loop == ["vmovups\t32(%rsp), %ymm0", "decl\t%ecx", "je\t.LBB0_3", "jmp\t.LBB0_2"]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="LLVM is asked for the host's architecture")
@pytest.mark.skipif(not triton.__version__.startswith("3.7."), reason="the baseline is of what Triton 3.7 emits")
@pytest.mark.parametrize("isa", gates.ISAS)
def test_baseline(isa):
    found = {isa: gates.measured(isa)}
    known = json.loads(gates.BASELINE.read_text())
    assert set(known[isa]) == set(found[isa])
    rows = gates.worse(found, known)
    assert not rows, "\n" + gates.text(rows)
