"""check_input_liveness: a replay that would read freed memory raises instead, and says where it was used and freed."""

import re
from types import SimpleNamespace

import pytest
import torch
from expecttest import assert_expected_inline


def capture():
    x = torch.ones(4, device="accel")
    pinned = torch.ones(4).pin_memory()
    g = torch.accel.AccelGraph()
    with torch.accel.graph(g, check_input_liveness=True):
        inner = x * 2
        y = inner + pinned.to("accel", non_blocking=True)
        del inner
    return g, SimpleNamespace(x=x, pinned=pinned, y=y)


def test_a_living_input_replays():
    g, kept = capture()
    kept.x.fill_(3)
    g.replay()
    assert kept.y.tolist() == [7] * 4


def test_a_freed_input_raises():
    g, kept = capture()
    g.replay()
    del kept.x
    with pytest.raises(RuntimeError) as raised:
        g.replay()
    text = re.sub(r"0x[0-9a-f]+", "ADDRESS", str(raised.value))
    stacks = re.findall(r'File ".*/(.*)", line \d+, in (\w+)\n +(.*)', text)
    assert stacks[-1][:2] == ("test_graph_liveness.py", "test_a_freed_input_raises") and stacks[-1][2] == "del kept.x"
    assert ("test_graph_liveness.py", "capture", "inner = x * 2") in stacks
    assert_expected_inline(
        re.sub(r"(?m)^      .*\n", "", text),
        """\
accel graph replay detected 1 dead tensor(s): the capture used memory that has been freed since. Keep these tensors as long as the graph, and fill them with copy_.
Dead tensor #1: accel:0, address ADDRESS
  Used in the capture:
  Freed:
""",
    )


@pytest.mark.parametrize("free", ["resize", "set_data"])
def test_a_replaced_input_raises(free):
    g, kept = capture()
    if free == "resize":
        kept.x.untyped_storage().resize_(0)
    else:
        kept.x.data = torch.zeros(4, device="accel")
    with pytest.raises(RuntimeError, match="1 dead tensor"):
        g.replay()


def test_a_freed_pinned_tensor_raises():
    g, kept = capture()
    del kept.pinned
    with pytest.raises(RuntimeError, match=r"1 dead tensor[^#]*#1: cpu, address"):
        g.replay()


def test_many_are_counted():
    inputs = [torch.ones(3, device="accel") for _ in range(7)]
    g = torch.accel.AccelGraph()
    with torch.accel.graph(g, check_input_liveness=True):
        total = sum(inputs)
    del inputs
    with pytest.raises(RuntimeError, match=r"7 dead(.|\n)*#5(.|\n)*\.\.\. and 2 more\n$"):
        g.replay()
    assert total.shape == (3,)


def test_a_storage_that_only_autograd_holds_is_alive():
    weight = torch.ones(4, device="accel", requires_grad=True)
    x = torch.full((4,), 3.0, device="accel")
    held = weight * x
    g = torch.accel.AccelGraph()
    with torch.accel.graph(g, check_input_liveness=True):
        y = x + 1
    del x
    g.replay()
    assert y.tolist() == [4] * 4
    held.sum().backward()
    del held
    with pytest.raises(RuntimeError, match="1 dead tensor"):
        g.replay()


def test_a_backward_inside_is_tracked():
    weight = torch.ones(4, device="accel", requires_grad=True)
    other = torch.full((4,), 2.0, device="accel")
    torch.accel.synchronize()
    g = torch.accel.AccelGraph()
    with torch.accel.graph(g, check_input_liveness=True):
        (weight * other).sum().backward()
    g.replay()
    assert weight.grad.tolist() == [2] * 4
    del other
    with pytest.raises(RuntimeError, match="1 dead tensor"):
        g.replay()


def test_reset_and_a_second_capture_forget():
    g, kept = capture()
    del kept
    g.reset()
    x = torch.ones(4, device="accel")
    with torch.accel.graph(g):
        y = x + 1
    g.replay()
    assert y.tolist() == [2] * 4


def test_a_failed_capture_leaves_no_mode():
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    g = torch.accel.AccelGraph()
    with pytest.raises(torch.AcceleratorError), torch.accel.graph(g, check_input_liveness=True):
        torch.ones(3, device="accel").sum().item()
    assert _get_current_dispatch_mode() is None
