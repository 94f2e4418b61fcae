"""Codes of the chip, late errors of assertions, waits that are not wanted, devices that are used again."""

import re
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from expecttest import assert_expected_inline

import torch_accel
from tests.memory import settled
from torch_accel import _C
from torch_accel.testing import hold_stream, launch_blocking, wait_report

HEADER = Path(__file__).resolve().parents[2] / "csrc/driver/accel.h"


@pytest.fixture(autouse=True)
def healthy():
    """No test leaves the device aborted."""
    yield
    torch.accel.reset_device()


def text_of(call, kind=RuntimeError):
    with pytest.raises(kind) as error:
        call()
    return str(error.value)


def test_the_codes_are_the_chips():
    declared = dict(re.findall(r"^  accel(Success|Error\w+) = (\d+),", HEADER.read_text(), flags=re.M))
    names = {
        "".join(part.capitalize() for part in code.name.split("_")): str(code.value) for code in torch.accel.accelStatus
    }
    assert {name: declared.get(name) for name in names} == names and len(names) >= 10


def test_check_error():
    torch.accel.check_error(0)
    torch.accel.check_error(torch.accel.accelStatus.SUCCESS)
    assert text_of(lambda: torch.accel.check_error(4), torch.accel.AccelError) == "not ready (4)"
    assert text_of(lambda: torch.accel.check_error(999), torch.accel.AccelError) == "unknown error (999)"
    with pytest.raises(torch.accel.AccelError) as error:
        torch.accel.check_error(torch.accel.accelStatus.ERROR_OUT_OF_MEMORY)
    assert error.value.code == 3


def test_the_exceptions_are_torchs():
    assert torch.accel.AcceleratorError is torch.AcceleratorError
    assert torch.accel.OutOfMemoryError is torch.OutOfMemoryError
    with launch_blocking(False), pytest.raises(torch.accel.AcceleratorError) as error:
        torch._assert_async(torch.zeros(1, device="accel"))
        torch.accel.synchronize()
    assert error.value.error_code == torch.accel.accelStatus.ERROR_LAUNCH_FAILURE


# ---- Assertions on the device


def test_an_assertion_is_queued_and_rises_at_the_synchronisation(queued):
    x = torch.zeros(1, device="accel")
    with hold_stream():
        torch._assert_async(x)
        torch._assert_async(x, "x must not be zero")
        assert not torch.accel.current_stream().query()
    assert_expected_inline(
        text_of(torch.accel.synchronize, torch.AcceleratorError),
        """\
accel kernel failed: _assert_async: Expected Tensor with single nonzero value, but got zero (operands: Float[1])
Kernels fail after their launch, so this call may not be the one to blame. ACCEL_LAUNCH_BLOCKING=1 raises the error at the launch.""",
    )
    torch.accel.synchronize()
    assert (x + 1).tolist() == [1]


def test_an_assertion_shows_its_message(queued):
    torch._assert_async(torch.tensor(False, device="accel"), "x must not be zero")
    assert "_assert_async: x must not be zero" in text_of(torch.accel.synchronize, torch.AcceleratorError)


@pytest.mark.parametrize("value", [True, 3, -0.5, float("nan"), 1j])
def test_an_assertion_that_holds(value):
    torch._assert_async(torch.tensor([[value]], device="accel"), "message")
    torch.ops.aten._functional_assert_async.msg(
        torch.tensor(value, device="accel"), "message", torch.ones(2, device="accel")
    )
    torch.accel.synchronize()


def test_a_functional_assertion_gives_its_token(queued):
    token = torch.arange(3.0, device="accel")
    result = torch.ops.aten._functional_assert_async.msg(torch.zeros((), device="accel"), "wrong", token)
    assert "wrong" in text_of(torch.accel.synchronize, torch.AcceleratorError)
    assert torch.equal(result.cpu(), token.cpu()) and result.data_ptr() != token.data_ptr()


@pytest.mark.parametrize("shape", [(0,), (2,), (1, 0)])
def test_an_assertion_about_no_single_value_is_the_cpus_error(shape):
    expected = text_of(lambda: torch._assert_async(torch.ones(shape)))
    assert text_of(lambda: torch._assert_async(torch.ones(shape, device="accel"))) == expected


def test_a_blocking_assertion_raises_at_the_call():
    with launch_blocking():
        assert "got zero" in text_of(
            lambda: torch._assert_async(torch.zeros(1, device="accel")), torch.AcceleratorError
        )


INDEXING = {
    "index_select": lambda x, i: x.index_select(0, i),
    "index": lambda x, i: x[i],
    "gather": lambda x, i: x.gather(0, i),
    "embedding": lambda x, i: torch.nn.functional.embedding(i, x[:, None]),
    "cross_entropy": lambda x, i: torch.nn.functional.cross_entropy(x[None].expand(2, 4).contiguous(), i),
}


@pytest.mark.parametrize("call", INDEXING.values(), ids=INDEXING.keys())
def test_an_index_out_of_range_rises_at_the_synchronisation(call, queued):
    x, index = torch.arange(4.0, device="accel"), torch.tensor([1, 9], device="accel")
    torch.accel.synchronize()
    with hold_stream():
        call(x, index)  # returns
    assert re.search("index|Target|range", text_of(torch.accel.synchronize, torch.AcceleratorError))
    assert (x + 1).tolist() == [1, 2, 3, 4]


# ---- Waits


SYNCHRONIZING = {
    "item": lambda x: x[0].item(),
    "cpu": lambda x: x.cpu(),
    "bool": lambda x: bool(x.sum() > 0),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 0],
    "print": lambda x: repr(x),
    "Stream.synchronize": lambda x: torch.accel.current_stream().synchronize(),
}


@pytest.fixture
def sync_debug_mode():
    yield torch.accel.set_sync_debug_mode
    torch.accel.set_sync_debug_mode(0)


@pytest.mark.parametrize("call", SYNCHRONIZING.values(), ids=SYNCHRONIZING.keys())
def test_sync_debug_mode(call, sync_debug_mode):
    x = torch.arange(4.0, device="accel")
    torch.accel.synchronize()
    sync_debug_mode("error")
    before = wait_report()
    assert "called a synchronizing accel operation" in text_of(lambda: call(x))
    assert wait_report() == before
    sync_debug_mode("warn")
    with pytest.warns(UserWarning, match="called a synchronizing accel operation"):
        call(x)
    sync_debug_mode("default")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(x)


def test_what_does_not_wait_is_not_reported(sync_debug_mode):
    x, pinned = torch.arange(4.0, device="accel"), torch.empty(4, pin_memory=True)
    sync_debug_mode("error")
    y = (x * 2).sum()
    pinned.copy_(x, non_blocking=True)
    torch.arange(4.0).to("accel")
    torch.accel.current_stream().record_event().synchronize()  # as torch.cuda: asked for by name
    torch.accel.synchronize()
    sync_debug_mode(0)
    assert y.item() == 12 and pinned.tolist() == [0, 1, 2, 3]


def test_sync_debug_modes(sync_debug_mode):
    for number, name in enumerate(("default", "warn", "error")):
        sync_debug_mode(name)
        assert torch.accel.get_sync_debug_mode() == number
        sync_debug_mode(number)
        assert torch.accel.get_sync_debug_mode() == number
    for wrong in ("warning", 3, -1):
        assert "invalid value of debug_mode" in text_of(lambda wrong=wrong: sync_debug_mode(wrong))


# ---- reset_device


def test_a_stream_that_is_held_for_ever_is_usable_again(queued):
    side, word = torch.accel.Stream(), torch.zeros(1, dtype=torch.int32, device="accel")
    x = torch.full((1000,), 7.0, device="accel")
    torch.accel.synchronize()
    _C._stream_wait_value(side, word.data_ptr(), 1)  # nobody writes it
    with torch.accel.stream(side):
        x.fill_(8)
        assert not side.query()
    torch.accel.current_stream().wait_stream(side)
    x.mul_(2)
    torch.accel.reset_device()
    assert side.query() and torch.accel.current_stream().query()
    assert x.eq(7).all().item(), "dropped work ran, or memory was lost"
    with torch.accel.stream(side):
        assert x.add(1).sum().item() == 8000


def test_a_thread_that_hangs_is_told(queued):
    word = torch.zeros(1, dtype=torch.int32, device="accel")
    torch.accel.synchronize()
    side = torch.accel.Stream()
    _C._stream_wait_value(side, word.data_ptr(), 1)
    before = wait_report().get("Stream.synchronize", 0)
    errors = []

    def hang():
        try:
            side.synchronize()
        except torch.AcceleratorError as error:
            errors.append((str(error), error.error_code))

    thread = threading.Thread(target=hang)
    thread.start()
    while wait_report().get("Stream.synchronize", 0) == before:
        pass
    torch.accel.reset_device("accel:0")
    thread.join()
    assert errors == [
        (
            "accel: accel:0 was aborted, its queued work is lost; reset it to use it again",
            torch.accel.accelStatus.ERROR_ABORTED,
        )
    ]


@pytest.mark.parametrize(
    "hang", [lambda x: x[0].item(), lambda x: x.cpu(), lambda x: x.nonzero()], ids=["item", "cpu", "fallback"]
)
def test_a_call_that_waits_for_its_result_raises_and_gives_none(hang, queued):
    x = torch.arange(4.0, device="accel")
    word = torch.zeros(1, dtype=torch.int32, device="accel")
    torch.accel.synchronize()
    _C._stream_wait_value(torch.accel.current_stream(), word.data_ptr(), 1)
    before, outcome = sum(wait_report().values()), []

    def run():
        try:
            outcome.append(hang(x))
        except torch.AcceleratorError as error:
            outcome.append(error.error_code)

    thread = threading.Thread(target=run)
    thread.start()
    while sum(wait_report().values()) == before:
        pass
    torch.accel.reset_device()
    thread.join()
    assert outcome == [torch.accel.accelStatus.ERROR_ABORTED]
    assert x.tolist() == [0, 1, 2, 3]


def test_an_aborted_device_is_usable_again(queued):
    x = torch.ones(4, device="accel")
    torch.accel.synchronize()
    _C._abort_device(0)
    x + 1
    for call in (torch.accel.synchronize, x.cpu, torch.accel.current_stream().synchronize):
        assert "accel:0 was aborted" in text_of(call, torch.AcceleratorError)
    torch.accel.reset_device()
    torch.accel.synchronize()
    assert (x + 1).tolist() == [2] * 4


def test_an_unseen_error_is_forgotten(queued):
    torch._assert_async(torch.zeros(1, device="accel"))
    torch.accel.reset_device()
    torch.accel.synchronize()


def test_training_goes_on_after_a_reset(queued):
    torch.manual_seed(0)
    model, cpu = torch.nn.Linear(8, 3).to("accel"), torch.nn.Linear(8, 3)
    cpu.load_state_dict(model.state_dict())
    word = torch.zeros(1, dtype=torch.int32, device="accel")
    torch.accel.synchronize()
    _C._stream_wait_value(torch.accel.current_stream(), word.data_ptr(), 1)
    model(torch.ones(5, 8, device="accel")).sum().backward()  # never runs
    torch.accel.reset_device()
    x = torch.randn(5, 8)
    for module, device in ((model, "accel"), (cpu, "cpu")):
        module.zero_grad()
        module(x.to(device)).square().sum().backward()
    for p, q in zip(model.parameters(), cpu.parameters(), strict=True):
        torch.testing.assert_close(p.grad.cpu(), q.grad)
    kept = settled()
    junk = [torch.empty(1 << 20, device="accel") for _ in range(4)]
    del junk
    assert torch.accel.memory_allocated() == kept


def test_a_capture_outlives_a_reset(queued):
    """What is captured has not been queued: a reset finds nothing of it to drop."""
    x = torch.ones(3, device="accel")
    torch.accel.synchronize()
    graph = torch.accel.AccelGraph()
    with torch.accel.graph(graph):
        y = x * 2
        torch.accel.reset_device()
        y += 1
    graph.replay()
    assert y.tolist() == [3] * 3


@pytest.mark.parametrize(("timeout", "milliseconds"), [(None, -1), (0, 0), (0.25, 250), (-1, 0), (1e300, 1 << 31)])
def test_the_timeout_is_in_seconds(timeout, milliseconds, monkeypatch):
    """What happens at its end is in tests/driver/test_reset.py: kernels that run for as long as a test likes are there."""
    seen = []
    with monkeypatch.context() as patch:
        patch.setattr(
            torch_accel.errors,
            "_C",
            SimpleNamespace(_reset_device=lambda *a: seen.append(a), _current_device=lambda: 0),
        )
        torch.accel.reset_device(timeout=timeout)
    assert seen == [(0, milliseconds)]


def test_other_devices_go_on(two_devices):
    two_devices("""
        import torch
        from torch_accel import _C
        from torch_accel.testing import hold_stream
        word = torch.zeros(1, dtype=torch.int32, device="accel:0")
        x, y = torch.zeros(4, device="accel:0"), torch.ones(4, device="accel:1")
        torch.accel.synchronize(0), torch.accel.synchronize(1)
        with hold_stream(torch.accel.default_stream(1)):
            y.add_(1)
            _C._stream_wait_value(torch.accel.default_stream(0), word.data_ptr(), 1)
            x.fill_(1)
            torch.accel.reset_device(0)
            assert torch.accel.default_stream(0).query() and not torch.accel.default_stream(1).query()
        assert y.tolist() == [2] * 4 and x.tolist() == [0] * 4 and torch.accel.current_device() == 0
        try:
            torch.accel.reset_device(2)
        except RuntimeError as error:
            assert "invalid device index 2" in str(error)
        else:
            raise AssertionError
    """)
