"""Operands on several devices: refused at the call, in torch's words, whichever operand is the odd one out."""

import re

import pytest
import torch
from expecttest import assert_expected_inline

#: operators of every layer; a is [3, 3], i are indices, m is a mask
CALLS = """
a + b
a.add_(b)
torch.add(a, a, out=b)
a @ b
torch.addmm(a, b, a)
torch.cat([a, b])
torch.stack([a, b])
torch.where(a > 0, a, b)
torch.where(b > 0, a, a)
a.masked_fill(b > 0, 1.0)
a.index_select(0, b[0].long())
a.gather(0, b.long())
a.scatter(0, b.long() * 0, a)
a.index_add(0, b[0].long() * 0, a)
a.index_put((a[0].long() * 0,), b[0])
torch.lerp(a, a, b)
torch.addcmul(a, a, b)
torch.clamp(a, min=b)
torch.nn.functional.linear(a, b)
torch.nn.functional.linear(a, a, b[0])
torch.nn.functional.conv2d(a[None, None], b[None, None])
torch.nn.functional.layer_norm(a, (3,), b[0])
torch.nn.functional.batch_norm(a, b[0], b[0])
torch.nn.functional.embedding(b.long() * 0, a)
torch.nn.functional.cross_entropy(a, b[0].long() * 0)
torch.nn.functional.mse_loss(a, b)
torch.nn.functional.scaled_dot_product_attention(a[None], b[None], a[None])
torch.linalg.solve(a + torch.eye(3, device=a.device), b)
torch.dot(a[0], b[0])
torch.bmm(a[None], b[None])
torch.cdist(a, b)
torch.bucketize(a, b[0])
torch._foreach_add([a], [b])
a.set_(b)
""".strip().splitlines()

TEXT = re.compile(
    r"Expected all tensors to be on the same device|expected .*same device|on the same device|[Ee]xpected .* [Dd]evice"
    r"|Attempted to set the storage"
)


def refuse(call: str, a: torch.Tensor, b: torch.Tensor) -> str:
    before = a.clone(), b.clone()
    with pytest.raises(RuntimeError) as raised:
        eval(call, {"torch": torch}, {"a": a, "b": b})
    assert type(raised.value) is RuntimeError, f"{call}: {raised.value!r}"  # not a late one
    assert torch.equal(a, before[0]) and torch.equal(b, before[1])
    return str(raised.value)


@pytest.mark.parametrize("call", CALLS)
def test_with_the_cpu(call):
    for a, b in ((torch.ones(3, 3).to("accel"), torch.ones(3, 3)), (torch.ones(3, 3), torch.ones(3, 3).to("accel"))):
        text = refuse(call, a, b)
        assert TEXT.search(text) and "accel:0" in text and "cpu" in text, text


def test_texts():
    a, b = torch.ones(3, 3).to("accel"), torch.ones(3, 3)
    assert_expected_inline(
        refuse("a + b", a, b),
        """Expected all tensors to be on the same device, but found at least two devices, accel:0 and cpu!""",
    )
    assert_expected_inline(
        refuse("torch.addmm(a, b, a)", a, b),
        """Expected all tensors to be on the same device, but got mat1 is on cpu, different from other tensors on accel:0 (when checking argument in method aten::addmm)""",
    )
    assert_expected_inline(
        refuse("torch.nn.functional.layer_norm(a, (3,), b[0])", a, b),
        """Expected all tensors to be on the same device, but got weight is on cpu, different from other tensors on accel:0 (when checking argument in method aten::native_layer_norm)""",
    )


def test_between_devices(script):
    done = script(
        """
        import torch
        from tests.aten.test_device_checks import CALLS, TEXT, refuse
        for one, two in (("accel:0", "accel:1"), ("accel:1", "accel:0")):
            for call in CALLS:
                text = refuse(call, torch.ones(3, 3, device=one), torch.ones(3, 3, device=two))
                if not (TEXT.search(text) and one in text and two in text):
                    print(call, text)
        a, b = torch.ones(3, 3, device="accel:0"), torch.ones(3, 3, device="accel:1")
        # A 0-dim tensor of another device is no number: only the CPU's are.
        for call in ("a + b[0, 0]", "a * b.sum()", "torch.where(a > 0, a, b[0, 0])"):
            assert "device" in refuse(call, a, b)
        # What moves between devices by itself.
        assert torch.equal(a.clone().copy_(b).cpu(), torch.ones(3, 3)) and (b.to(a.device) + a).device == a.device
        assert torch.equal(torch.tensor([b[0, 0].item()]), torch.ones(1))
        with torch.accel.device(1):  # the current device does not matter, the operands' does
            assert (a + a).device == a.device and torch.equal((a @ a).cpu(), torch.full((3, 3), 3.0))
        """,
        ACCEL_DEVICES=2,
    )
    assert done.stdout == ""


ALLOWED = {
    "0-dim CPU tensor": lambda a: a + torch.tensor(2.0),
    "0-dim CPU tensor first": lambda a: torch.tensor(2.0) - a,
    "CPU indices": lambda a: a[torch.tensor([0, 2])],
    "CPU mask": lambda a: a[torch.tensor([True, False, True])],
    "CPU indices of a write": lambda a: a.index_put((torch.tensor([1]),), a[0]),
    "0-dim CPU value": lambda a: a.masked_fill(a > 0, torch.tensor(5.0)),
    "0-dim CPU branch": lambda a: torch.where(a > 0, a, torch.tensor(5.0)),
    "0-dim CPU tensor written": lambda a: a.index_put((torch.tensor([1]),), torch.tensor(5.0)),
    "another's shape": lambda a: a.expand_as(torch.ones(2, 3, 3)),
    "split points": lambda a: torch.tensor_split(a, torch.tensor([1, 2]))[1],
    "assignment of a CPU row": lambda a: a.clone().index_fill_(0, torch.tensor([0], device=a.device), 2.0),
}


@pytest.mark.parametrize("call", ALLOWED.values(), ids=ALLOWED.keys())
def test_what_may_be_on_the_cpu(call):
    a = torch.arange(9.0).view(3, 3)
    actual = call(a.to("accel"))
    assert actual.is_accel and torch.equal(actual.cpu(), call(a))


def test_0_dim_cpu_tensor_is_not_written():
    with pytest.raises(RuntimeError, match=r"same device|accel:0"):
        torch.tensor(1.0).add_(torch.tensor(2.0, device="accel"))
    with pytest.raises(RuntimeError, match=r"device"):
        torch.add(torch.ones((), device="accel"), 1, out=torch.tensor(1.0))
