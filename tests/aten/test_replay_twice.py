"""ACCEL_REPLAY_TWICE=1: records that only overwrite their outputs run twice, and must give the same bits."""

import pytest

# Records with a captured operand, one with a list, a view, two outputs, a random fill, a copy
SCRIPT = """
import torch
from torch_accel.testing import plant

def run(device):
    torch.manual_seed(0)
    x = torch.arange(12.0).reshape(3, 4).to(device)
    s = torch.tensor(2.0)
    results = [x * s, torch.cat([x, x[:1]]), *x.sort(1, descending=True), x.t().matmul(x), torch.exp(x, out=x.new_empty(0))]
    results += [x.clone().add_(1).relu_(), x.clone().fill_(s), torch.full_like(x, 3)[:, 1:], x.bernoulli(0.0)]
    results += [x[[0, 2]], x.new_zeros(1).expand(3).fill_(4), torch.complex(x, x).conj().clone(), x.to(torch.int32)]
    wide = torch.zeros(3, 8, device=device)
    torch.add(x, 1, out=wide[:, ::2])
    return [*results, wide, x]

def same():
    return all(torch.equal(a.cpu(), e) for a, e in zip(run("accel"), run("cpu")))
"""


@pytest.mark.parametrize("twice", ["0", "1"])
def test_results_are_the_same(script, twice):
    script(SCRIPT + "assert same()", ACCEL_REPLAY_TWICE=twice)


TEXT = (
    "accel kernel failed: {}: accel: run a second time (ACCEL_REPLAY_TWICE=1), the kernel gave output 0 of shape [3] "
    "other values; it must leave its record as it is, overwrite all elements, and declare an output that it reads as "
    "reads() too (operands: {})\n"
)
#: planted fault, call -> the operator and its operands
FAULTS = {
    ("spend", "x * torch.tensor([2.0, 3.0, 4.0])[0]"): ("mul", "Float[3], Float[3], Float[]"),
    ("undeclared_read", "x.add_(1)"): ("add", "Float[3], Float[3], Long[]"),
    # Twice in place gives the same values: only the poison tells.
    ("undeclared_read", "x.clamp_(max=1.5)"): ("clamp", "Float[3], Float[3]"),
}


@pytest.mark.parametrize("twice", ["0", "1"])
def test_a_kernel_that_cannot_be_repeated_is_noticed(script, twice):
    done = script(
        SCRIPT
        + f"""
for fault, call in {list(FAULTS)}:
    x = torch.tensor([1.0, 2.0, 3.0], device="accel")
    torch.accel.synchronize()
    try:
        with plant(fault):
            exec(call)
            torch.accel.synchronize()
        print("nothing was noticed")
    except torch.AcceleratorError as error:
        print(str(error).splitlines()[0])
    assert same()
""",
        ACCEL_REPLAY_TWICE=twice,
    )
    texts = [TEXT.format(*value) if twice == "1" else "nothing was noticed\n" for value in FAULTS.values()]
    assert done.stdout == "".join(texts)


def test_warnings_come_once(script):
    script(
        """
        import warnings, torch
        torch.set_warn_always(True)
        x = torch.ones(3, dtype=torch.complex64, device="accel")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.empty(3, device="accel").copy_(x)
            torch.accel.synchronize()
        assert len(caught) == 1, caught
        """,
        ACCEL_REPLAY_TWICE=1,
    )


def test_unusable_value(script):
    done = script(
        """
        import torch
        try:
            torch.ones(3, device="accel")
        except RuntimeError as error:
            print(error)
        """,
        ACCEL_REPLAY_TWICE="twice",
    )
    assert done.stdout == "accel: ACCEL_REPLAY_TWICE must be 0 or 1, got 'twice'\n"
