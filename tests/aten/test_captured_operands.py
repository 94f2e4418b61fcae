"""CPU operands of every kind, changed and freed while the work still waits: the values at the call count."""

import gc
import threading

import pytest
import torch

from torch_accel.testing import fallback_mode, hold_stream

S, INDEX, MASK = torch.tensor(3.0), torch.tensor([2, 0]), torch.tensor([True, False, True])

#: what is computed -> (the CPU operand, how). X is [3, 4]: 0, 1, 2, ...
CASES = {
    "a float taken from a tensor": (S, lambda x, s: x + float(s)),
    "a 0-dim factor": (S, lambda x, s: x * s),
    "a 0-dim tensor first": (S, lambda x, s: s - x),
    "a 0-dim tensor of another dtype": (torch.tensor(2, dtype=torch.int64), lambda x, s: x / s),
    "in place": (S, lambda x, s: x.clone().mul_(s)),
    "out=": (S, lambda x, s: torch.add(x, s, out=torch.empty_like(x))),
    "alpha": (S, lambda x, s: torch.add(x, x, alpha=s)),
    "comparison": (S, lambda x, s: x > s),
    "maximum": (S, lambda x, s: torch.maximum(x, s)),
    "exponent": (S, lambda x, s: x**s),
    "base": (S, lambda x, s: torch.pow(s, x)),
    "lerp": (S, lambda x, s: torch.lerp(x, x + 1, s)),
    "addcmul": (S, lambda x, s: torch.addcmul(x, x, s)),
    "bitwise": (torch.tensor(6), lambda x, s: x.long() & s),
    "fill_": (S, lambda x, s: x.clone().fill_(s)),
    "copy_": (torch.arange(4.0), lambda x, s: x.clone().copy_(s)),
    "copy_ of a strided source": (torch.arange(8.0)[::2], lambda x, s: x.clone().copy_(s)),
    "copy_ of another dtype": (torch.arange(4), lambda x, s: x.clone().copy_(s)),
    "to": (torch.arange(4.0), lambda x, s: s.to(x.device) + x),
    "x[1] = rows": (torch.arange(4.0), lambda x, s: set_item(x, 1, s)),
    "x[index]": (INDEX, lambda x, i: x[i]),
    "x[:, index]": (INDEX, lambda x, i: x[:, i]),
    "x[index, index]": (INDEX, lambda x, i: x[i, i]),
    "x[mask]": (MASK, lambda x, m: x[m]),
    "x[mask, 1:]": (MASK, lambda x, m: x[m, 1:]),
    # where, masked_fill and index_put
    "where, other": (S, lambda x, s: torch.where(x > 4, x, s)),
    "where, self": (S, lambda x, s: torch.where(x > 4, s, x)),
    "where, condition": (torch.tensor(True), lambda x, c: torch.where(c, x, x + 1)),
    "where, both": (S, lambda x, s: torch.where(x > 4, s, s * 2)),
    "where of another dtype": (torch.tensor(3), lambda x, s: torch.where(x > 4, x, s)),
    "masked_fill": (S, lambda x, s: x.masked_fill(x > 4, s)),
    "masked_fill_": (S, lambda x, s: x.clone().masked_fill_(x > 4, s)),
    "x[index] = number": (INDEX, lambda x, i: set_item(x, i, 5.0)),
    "x[:, index] = number": (INDEX, lambda x, i: set_item(x, (slice(None), i), 5.0)),
    "x[index] = rows": (INDEX, lambda x, i: set_item(x, i, x[:2] * 2)),
    "x[index] += rows": (INDEX, lambda x, i: x.clone().index_put_((i,), x[:2], accumulate=True)),
    "x[index] = 0-dim": (S, lambda x, s: x.clone().index_put_((INDEX,), s)),
    "index_put": (INDEX, lambda x, i: x.index_put((i,), x[0])),
    "x[mask] = number": (MASK, lambda x, m: set_item(x, m, 5.0)),
    "x[mask] = row": (MASK, lambda x, m: set_item(x, m, x[1])),
    "_foreach_mul": (S, lambda x, s: torch._foreach_mul([x, x[0]], s)[0]),
}


def set_item(x: torch.Tensor, where, value) -> torch.Tensor:
    x = x.clone()
    x[where] = value
    return x


@pytest.mark.parametrize("operand, call", CASES.values(), ids=CASES.keys())
def test_the_values_at_the_call_count(operand, call):
    x = torch.arange(12.0).view(3, 4)
    expected = call(x, operand)
    device = x.to("accel")
    torch.accel.synchronize()
    results = []

    def work():
        given = operand.clone()
        results.append(call(device, given))
        given.fill_(0 if operand.dtype in (torch.bool, torch.int64) else -7)  # an index stays in range
        del given
        gc.collect()
        results.extend(torch.full_like(operand, 1) for _ in range(8))  # what was freed has other bytes now

    # In a thread: a call that waits for the held stream would wait for ever.
    thread = threading.Thread(target=work)
    with hold_stream(), fallback_mode("error"):
        thread.start()
        thread.join(timeout=20)
        waits = thread.is_alive()
    thread.join()
    assert not waits and results, "the call waited for its stream, or raised"
    torch.testing.assert_close(results[0].cpu(), expected, rtol=0, atol=0)
    assert results[0].stride() == expected.stride()
