"""Fallbacks are counted, warned of and forbidden."""

import pytest
import torch
from expecttest import assert_expected_inline

import torch_accel
from tests.aten.fallback_cases import define
from torch_accel.testing import fallback_mode

pytestmark = pytest.mark.usefixtures("no_leaked_workspace")


def test_report_counts():
    x = torch.ones(3, device="accel")
    torch_accel.fallback_report(reset=True)
    x.nonzero()
    x.nonzero()
    x.unique()
    report = torch_accel.fallback_report(reset=True)
    assert report == {"aten::nonzero": 2, "aten::_unique2": 1}
    assert list(report.values()) == sorted(report.values(), reverse=True) and report.total == 3
    assert_expected_inline(str(torch_accel.fallback_report()), """accel: no operator fell back""")


def test_queued_operators_do_not_count():
    torch_accel.fallback_report(reset=True)
    x = torch.empty(3, device="accel").fill_(1).zero_()
    x.copy_(torch.ones(3))
    x[0].item()
    x.uniform_()
    assert torch_accel.fallback_report().total == 0


def test_forbidden():
    x = torch.ones(3, device="accel")
    with fallback_mode("error"), pytest.raises(NotImplementedError) as raised:
        x.nonzero()
    assert_expected_inline(
        str(raised.value),
        """accel: aten::nonzero has no kernel for accel, and ACCEL_FALLBACK=error forbids to run the CPU's; set ACCEL_FALLBACK=allow""",
    )
    assert x.nonzero().shape == (3, 1)  # allowed again


def test_warned_once_an_operator():
    x = torch.ones(3, device="accel")
    torch_accel.fallback_report(reset=True)
    with fallback_mode("warn"), pytest.warns(UserWarning) as caught:
        x.nonzero()
        x.nonzero()
    assert len(caught) == 1
    assert_expected_inline(
        str(caught[0].message).split(" (Triggered")[0],
        """accel: aten::nonzero runs its CPU kernel on device memory (ACCEL_FALLBACK=warn)""",
    )


def test_unknown_mode():
    with pytest.raises(RuntimeError) as raised, fallback_mode("never"):
        pass
    assert_expected_inline(str(raised.value), """accel: ACCEL_FALLBACK='never' is not one of allow, warn, error""")


def test_unknown_mode_in_the_environment(script):
    done = script(
        """
        import torch
        try:
            torch.ones(3, device="accel").nonzero()
        except RuntimeError as error:
            print(error)
        print(torch.zeros(3).to("accel").cpu().tolist())
        """,
        ACCEL_FALLBACK="yes",
    )
    assert done.stdout == "accel: ACCEL_FALLBACK='yes' is not one of allow, warn, error\n[0.0, 0.0, 0.0]\n"


def test_operator_without_a_cpu_kernel():
    op = define("meta_only(Tensor x) -> Tensor", lambda x: torch.empty_like(x), "Meta")
    with pytest.raises(NotImplementedError) as raised:
        op(torch.ones(3, device="accel"))
    assert_expected_inline(
        str(raised.value).split("::", 1)[1],
        """meta_only has no kernel for accel, and none for the CPU that it could fall back on; move its operands with .cpu() and use an operator that the CPU has""",
    )
    assert str(raised.value).startswith("accel: fb")
