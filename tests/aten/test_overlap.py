"""Overlapping memory: what may not be written raises at the call, in the CPU's words; what may is computed."""

import pytest
import torch

#: each writes to memory of which two elements are one, or to memory that it also reads elsewhere
REFUSED = {
    "in-place unary, expanded": lambda d: torch.ones(1, device=d).expand(3).exp_(),
    "in-place binary, expanded": lambda d: torch.ones(1, 3, device=d).expand(4, 3).add_(1),
    "in-place ternary, expanded": lambda d: (
        torch.ones(1, device=d).expand(3).addcmul_(torch.ones(3, device=d), torch.ones(3, device=d))
    ),
    "in-place comparison, expanded": lambda d: torch.ones(1, device=d).expand(3).gt_(0),
    "clamp_, expanded": lambda d: torch.ones(1, device=d).expand(3).clamp_(0, 1),
    "masked_fill_, expanded by a mask of its shape": lambda d: (
        torch.ones(1, device=d).expand(3).masked_fill_(torch.ones(3, dtype=torch.bool, device=d), 2)
    ),
    "uniform_, expanded": lambda d: torch.ones(1, device=d).expand(3).uniform_(),
    "copy_, expanded": lambda d: torch.ones(1, device=d).expand(3).copy_(torch.ones(3, device=d)),
    "scatter_, expanded": lambda d: (
        torch.ones(1, device=d).expand(3).scatter_(0, torch.tensor([0], device=d), torch.ones(1, device=d))
    ),
    "index_add_, expanded": lambda d: (
        torch.ones(1, device=d).expand(3).index_add_(0, torch.tensor([0], device=d), torch.ones(1, device=d))
    ),
    "index_copy_, expanded": lambda d: (
        torch.ones(1, device=d).expand(3).index_copy_(0, torch.tensor([0], device=d), torch.ones(1, device=d))
    ),
    "index_fill_, expanded": lambda d: torch.ones(1, device=d).expand(3).index_fill_(0, torch.tensor([0], device=d), 2),
    "out=, expanded": lambda d: torch.add(torch.ones(3, device=d), 1, out=torch.ones(1, device=d).expand(3)),
    "out= of a reduction, expanded": lambda d: torch.sum(
        torch.ones(3, 2, device=d), 1, out=torch.ones(1, device=d).expand(3)
    ),
    "in-place with a shifted self": lambda d: both(d, lambda x: x[1:].add_(x[:-1])),
    "copy_ of a shifted self": lambda d: both(d, lambda x: x[1:].copy_(x[:-1])),
    "in-place with its transpose": lambda d: both(d, lambda x: x.view(3, 3).mul_(x.view(3, 3).t())),
    "out= that is a shifted input": lambda d: both(d, lambda x: torch.exp(x[:-1], out=x[1:])),
    "out= of where": lambda d: both(d, lambda x: torch.where(x[:-1] > 2, x[:-1], x[:-1], out=x[1:])),
    "out= of cat": lambda d: both(d, lambda x: torch.cat([x[:2], x[1:3]], out=x[1:5])),
    "out= of index_select": lambda d: both(
        d, lambda x: torch.index_select(x, 0, torch.tensor([0, 1], device=d), out=x[:2])
    ),
    "out= of gather": lambda d: both(d, lambda x: torch.gather(x, 0, torch.tensor([0, 1], device=d), out=x[:2])),
    "out= of masked_select": lambda d: both(d, lambda x: torch.masked_select(x, x > 5, out=x[:3])),
    "out= of take": lambda d: both(d, lambda x: torch.take(x, torch.tensor([0, 1], device=d), out=x[:2])),
    "index_copy_ from itself": lambda d: both(d, lambda x: x.index_copy_(0, torch.tensor([0, 1], device=d), x[:2])),
    "index_add_ from itself": lambda d: both(d, lambda x: x.index_add_(0, torch.tensor([0, 1], device=d), x[:2])),
    "scatter_ from itself": lambda d: both(d, lambda x: x.scatter_(0, torch.tensor([0, 1], device=d), x[:2])),
    "masked_scatter_ from itself": lambda d: both(d, lambda x: x.masked_scatter_(x > 3, x[1:])),
    "index_put_ on expanded": lambda d: (
        torch.ones(1, device=d).expand(3).index_put_((torch.tensor([0, 1], device=d),), torch.ones(2, device=d))
    ),
    "foreach, expanded": lambda d: torch._foreach_add_([torch.ones(1, device=d).expand(3)], 1.0),
}


def both(device, call):
    return call(torch.arange(9.0, device=device))


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED.keys())
def test_as_the_cpu(call):
    try:
        expected = call("cpu")
    except RuntimeError as error:
        with pytest.raises(RuntimeError) as raised:
            call("accel")
        assert type(raised.value) is RuntimeError  # at the call: a late one would be an AcceleratorError
        assert str(raised.value).replace("accel:0", "cpu") == str(error)
        torch.accel.synchronize()
    else:
        actual = call("accel")
        torch.testing.assert_close(actual[0].cpu(), expected[0], rtol=0, atol=0)


ALLOWED = {
    "in-place with itself": lambda x: x.add_(x),
    "out= that is an input": lambda x: torch.exp(x, out=x),
    "out= that is both inputs": lambda x: torch.mul(x, x, out=x),
    "in-place with a disjoint part": lambda x: x[:4].add_(x[4:8]),
    "in-place with interleaved elements": lambda x: x[:8:2].mul_(x[1::2]),
    "in-place with its expanded element": lambda x: x[1:].add_(x[0]),
    "copy_ onto itself": lambda x: x.copy_(x),
    "copy_ of a reversed copy": lambda x: x.copy_(x.flip(0)),
    "fill_ of expanded": lambda x: x[:1].expand(4).fill_(3),
    "zero_ of overlapping windows": lambda x: x.as_strided((4, 3), (2, 1)).zero_(),
    "read of expanded": lambda x: x[:1].expand(4) + x[:4],
    "read of overlapping windows": lambda x: x.as_strided((3, 3), (2, 1), 1).sum(1),
    "addmm_ into its own row sums": lambda x: x.view(3, 3).addmm_(x.view(3, 3).clone(), x.view(3, 3).clone()),
}


@pytest.mark.parametrize("call", ALLOWED.values(), ids=ALLOWED.keys())
def test_allowed(call):
    host, device = torch.arange(9.0), torch.arange(9.0).to("accel")
    expected, actual = call(host), call(device)
    torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=0)
    assert torch.equal(device.cpu(), host)


def test_overlap_against_python():
    x = torch.arange(9.0).to("accel")
    x[:8:2].mul_(x[1::2])
    assert x.tolist() == [0 * 1, 1, 2 * 3, 3, 4 * 5, 5, 6 * 7, 7, 8]
