"""Host waits that hide in operations: what is told of them, and to whom. The modes themselves are in test_errors.py."""

import inspect
import re
import sys
import threading
import warnings

import pytest
import torch
from expecttest import assert_expected_inline

from torch_accel import _sync_debug
from torch_accel.testing import hold_stream, host_waits, wait_report


@pytest.fixture
def sync_debug_mode():
    yield torch.accel.set_sync_debug_mode
    torch.accel.set_sync_debug_mode(0)


@pytest.fixture
def x():
    made = torch.arange(4.0, device="accel")
    torch.accel.synchronize()
    return made


def scaled(x):
    scale = x.max().item()
    return x / scale


LINE = inspect.getsourcelines(scaled)[1] + 1


def plain(text: str) -> str:
    """Without what differs from machine to machine: folders, the outer frames, where C++ has raised."""
    text = re.sub(r'File "[^"]*[/\\]([^"/\\]+)", line \d+', r'File "\1", line N', text)
    text = re.sub(r"\(Triggered internally at .*?\)", "(Triggered internally)", text)
    frames = text.index("  File")
    inner = text.rindex('  File "test_sync_debug.py"', 0, text.rindex('  File "test_sync_debug.py"'))
    return re.sub(r"\d+ outer", "N outer", text[:frames]) + text[inner:]


def test_the_error_shows_the_stack(x, sync_debug_mode):
    sync_debug_mode("error")
    with pytest.raises(RuntimeError) as error:
        scaled(x)
    assert_expected_inline(
        plain(str(error.value)),
        """\
called a synchronizing accel operation: _local_scalar_dense (item)
Python stack, innermost last (N outer frames left off):
  File "test_sync_debug.py", line N, in test_the_error_shows_the_stack
    scaled(x)
  File "test_sync_debug.py", line N, in scaled
    scale = x.max().item()""",
    )


def test_the_warning_shows_the_stack_and_points_to_the_line(x, sync_debug_mode):
    sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scaled(x)
    (warning,) = caught
    assert (warning.filename, warning.lineno) == (__file__, LINE)
    assert_expected_inline(
        plain(str(warning.message)),
        """\
called a synchronizing accel operation: _local_scalar_dense (item)
Python stack, innermost last (N outer frames left off):
  File "test_sync_debug.py", line N, in test_the_warning_shows_the_stack_and_points_to_the_line
    scaled(x)
  File "test_sync_debug.py", line N, in scaled
    scale = x.max().item()
 (Triggered internally)""",
    )


#: what waits -> the operation and the caller of the wait counters
OPERATIONS = {
    "item": (lambda x: x[0].item(), "_local_scalar_dense (item)"),
    "tolist": (lambda x: x.tolist(), "copy_"),
    "bool": (lambda x: bool(x.any()), "_local_scalar_dense (item)"),
    "nonzero": (lambda x: x.nonzero(), "aten::nonzero (fallback)"),
    "mask": (lambda x: x[x > 1], "aten::nonzero (fallback)"),
    "unique": (lambda x: x.unique(), "aten::_unique2 (fallback)"),
    "large copy": (lambda x: torch.ones(1 << 16).to("accel"), "copy_"),
    "Stream.synchronize": (lambda x: torch.accel.current_stream().synchronize(), "Stream.synchronize"),
}


@pytest.mark.parametrize("call, name", OPERATIONS.values(), ids=OPERATIONS.keys())
def test_the_operation_that_waits_is_named(call, name, x):
    with host_waits() as waits:
        call(x)
    assert {str(wait).partition(" at ")[0] for wait in waits} == {name}
    for wait in waits:
        assert wait.frame.filename == __file__ and wait.frame.name == "<lambda>"


def test_waits_are_listed_in_order_with_their_lines(x, sync_debug_mode):
    before = torch.accel.get_sync_debug_mode()
    with host_waits() as waits, warnings.catch_warnings():
        warnings.simplefilter("error")  # a list is no mode
        scaled(x)
        x.cpu()
    assert [(wait.operation, wait.caller) for wait in waits] == [("_local_scalar_dense", "item"), ("copy_", "copy_")]
    assert (waits[0].frame.lineno, waits[0].frame.name) == (LINE, "scaled")
    assert waits[0].frame.line == "scale = x.max().item()"
    assert [frame.name for frame in waits[0].stack[-2:]] == [inspect.currentframe().f_code.co_name, "scaled"]
    scaled(x)
    assert len(waits) == 2 and torch.accel.get_sync_debug_mode() == before


def test_lists_nest(x):
    with host_waits() as outer:
        with host_waits() as inner:
            x.cpu()
        x.cpu()
    assert (len(outer), len(inner)) == (2, 1)


def test_what_is_asked_for_by_name_or_does_not_wait_is_not_listed(x):
    pinned = torch.empty(4, pin_memory=True)
    with host_waits() as waits:
        (x * 2).sum()
        pinned.copy_(x, non_blocking=True)
        torch.accel.current_stream().record_event().synchronize()
        torch.accel.synchronize()
    assert waits == []


def test_a_wait_is_listed_before_it_begins(x, queued):
    """A program that hangs in a wait can be asked where."""
    with host_waits() as waits:
        with hold_stream():
            y = x + 1
            thread = threading.Thread(target=scaled, args=(y,))
            before = wait_report().get("item", 0)
            thread.start()
            while wait_report().get("item", 0) == before and thread.is_alive():
                pass
            assert [wait.frame.name for wait in waits] == ["scaled"]
        thread.join()


def test_autograds_thread(x):
    """A hook's Python code is found on autograd's own thread."""
    x.requires_grad_()

    def hook(gradient):
        threads.append(threading.get_ident())
        gradient.sum().item()

    threads = []
    x.register_hook(hook)
    with host_waits() as waits:
        (x * 2).sum().backward()
    assert threads != [threading.get_ident()]
    assert [wait.frame.name for wait in waits] == ["hook"]


def test_a_wait_without_python_code(x, sync_debug_mode):
    """Backward of a product looks for zeros, on autograd's thread: there is no line to show, and it says so."""
    x.requires_grad_()
    y = x.prod()
    sync_debug_mode("error")
    with pytest.raises(RuntimeError) as error:
        y.backward()
    assert_expected_inline(
        str(error.value),
        """\
called a synchronizing accel operation: aten::nonzero (fallback)
No Python code on this thread (autograd's?).""",
    )


def test_a_listener_that_raises_changes_nothing(x, monkeypatch):
    """Its error goes where Python's unraisable ones go, not into the operator."""

    def broken(wait):
        raise ValueError("no")

    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", lambda error: unraisable.append((error.exc_value, error.object)))
    _sync_debug.add_listener(broken)
    try:
        assert x.sum().item() == 6
    finally:
        _sync_debug.remove_listener(broken)
    ((value, where),) = unraisable
    assert str(value) == "no" and "observer of host waits" in str(where)
