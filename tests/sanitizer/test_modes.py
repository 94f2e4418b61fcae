"""Turning it on and off; threads; what must not be taken for a race; what is kept."""

import threading

import pytest
import torch
from torch.nn import functional as F

from tests.training import decoder_lm
from torch_accel import _C, sanitizer
from torch_accel.testing import hold_stream, launch_blocking, launches

READERS = ("numpy", "tolist", "__dlpack__")


def subscribers():
    return _C._sanitizer_stats()[2]


def race():
    """Two launches that nothing orders."""
    side = torch.accel.Stream()
    x = torch.ones(4, device="accel")
    with torch.accel.stream(side):
        x.add_(1)
    side.synchronize()


def test_off_leaves_nothing_behind():
    originals = [getattr(torch.Tensor, name) for name in READERS]
    own = [name in vars(torch.Tensor) for name in READERS]
    assert sanitizer.mode() == "off" and subscribers() == 0
    with sanitizer.enabled():
        assert sanitizer.mode() == "raise" and subscribers() == 1
        assert [getattr(torch.Tensor, name) for name in READERS] != originals
    assert sanitizer.mode() == "off" and subscribers() == 0
    assert [getattr(torch.Tensor, name) for name in READERS] == originals
    assert [name in vars(torch.Tensor) for name in READERS] == own
    race()
    assert sanitizer.report() == []


def test_modes_nest():
    with sanitizer.enabled("warn"):
        with sanitizer.enabled("raise"):
            assert sanitizer.mode() == "raise"
            with sanitizer.enabled("off"):
                race()
        assert sanitizer.mode() == "warn"
        sanitizer.enable("raise")
        sanitizer.disable()
        assert sanitizer.mode() == "off"
    assert sanitizer.report() == []


@pytest.mark.parametrize("switch", [sanitizer.enable, lambda mode: sanitizer.enabled(mode).__enter__()])
def test_an_unknown_mode(switch):
    with pytest.raises(ValueError, match=r"'raise'|raise, warn, off"):
        switch("often")
    assert sanitizer.mode() == "off"


@pytest.mark.parametrize(
    ("value", "mode"), [("", "off"), ("0", "off"), ("1", "raise"), ("raise", "raise"), ("warn", "warn")]
)
def test_the_variable(script, value, mode):
    done = script(
        """
        import torch
        x = torch.ones(3, device="accel")
        print(torch.accel.sanitizer.mode(), x.sum().item())
        """,
        ACCEL_SANITIZER=value,
    )
    assert done.stdout == f"{mode} 3.0\n"


def test_another_value_of_the_variable(script):
    done = script("import torch; torch.ones(3, device='accel')", check=False, ACCEL_SANITIZER="yes")
    assert "RuntimeError: accel: ACCEL_SANITIZER=yes is not usable; accepted: 0, 1, raise, warn" in done.stderr


def test_an_uncaught_race_ends_the_process(script):
    done = script(
        """
        import torch
        side = torch.accel.Stream()
        x = torch.ones(4, device="accel")
        with torch.accel.stream(side):
            x.add_(1)
        """,
        check=False,
        ACCEL_SANITIZER=1,
    )
    assert done.returncode == 1
    assert "RuntimeError: accel sanitizer: add on stream 1 of accel:0 writes memory that fill_" in done.stderr


def test_it_shares_the_trace():
    with launches() as outer, sanitizer.enabled(), launches() as inner:
        torch.ones(3, device="accel").add_(1)
    assert outer == inner and [name for name in outer if name != "memset"] == ["fill_", "add"]  # but for poison


def test_the_schedule_does_not_matter():
    """A race that the schedule hides is found, with blocking launches as behind a held stream."""
    for blocking in (True, False):
        with launch_blocking(blocking), sanitizer.enabled(), pytest.raises(RuntimeError, match="accel sanitizer"):
            race()
    side = torch.accel.Stream()
    x = torch.ones(4, device="accel")
    torch.accel.synchronize()
    with sanitizer.enabled(), hold_stream(side):
        with torch.accel.stream(side):
            x.add_(1)
        with pytest.raises(RuntimeError, match="accel sanitizer"):
            x.mul_(2)


def test_threads_on_streams_of_their_own():
    weights = torch.ones(64, 64, device="accel")
    torch.accel.synchronize()
    errors = []

    def work():
        try:
            with torch.accel.stream(torch.accel.Stream()):
                w = weights.clone().requires_grad_()
                for _ in range(5):
                    (w @ weights).relu().sum().backward()
                    w.grad.cpu()
        except Exception as error:
            errors.append(error)

    with sanitizer.enabled():
        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert errors == []


def test_a_thread_that_races_is_told():
    x, told = torch.ones(4, device="accel"), []

    def work():
        with torch.accel.stream(torch.accel.Stream()), pytest.raises(RuntimeError) as caught:
            x.add_(1)
        told.append(str(caught.value))

    with sanitizer.enabled():
        x.mul_(2)
        worker = threading.Thread(target=work)
        worker.start()
        worker.join()
    assert "in work" in told[0]


def test_a_race_in_a_backward_is_raised_by_it():
    side = torch.accel.Stream()
    w = torch.ones(4, device="accel", requires_grad=True)
    factor = torch.full((4,), 2.0, device="accel")
    torch.accel.synchronize()
    with sanitizer.enabled():
        loss = (w * factor).sum()
        side.wait_stream(torch.accel.current_stream())
        with torch.accel.stream(side):
            factor.data.mul_(3)
        with pytest.raises(RuntimeError, match=r"in the backward \(MulBackward0\)"):
            loss.backward()
    side.synchronize()


def test_switching_while_others_launch():
    stop = threading.Event()

    def work():
        with torch.accel.stream(torch.accel.Stream()):
            host = torch.ones(64, pin_memory=True)
            while not stop.is_set():
                host.to("accel", non_blocking=True).sum().item()
                host.sum()

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for _ in range(200):
        with sanitizer.enabled("warn"):
            pass
    stop.set()
    for worker in workers:
        worker.join()
    assert subscribers() == 0 and sanitizer.report() == []


VIEWS = {
    "halves": (lambda x: x[:4], lambda x: x[4:]),
    "columns": (lambda x: x[:, :3], lambda x: x[:, 3:]),
    "every other column": (lambda x: x[:, ::2], lambda x: x[:, 1::2]),
    "every other row": (lambda x: x[::2], lambda x: x[1::2]),
    "rows of the transposed": (lambda x: x.t()[:2], lambda x: x.t()[2:]),
    "planes": (lambda x: x.view(8, 2, 4)[:, 0], lambda x: x.view(8, 2, 4)[:, 1]),
}


@pytest.mark.parametrize("views", VIEWS)
def test_views_that_do_not_meet(views):
    side, (mine, theirs) = torch.accel.Stream(), VIEWS[views]
    x = torch.ones(8, 8, device="accel")
    torch.accel.synchronize()
    with sanitizer.enabled():
        with torch.accel.stream(side):
            theirs(x).mul_(2)
        mine(x).mul_(3)
        with pytest.raises(RuntimeError, match="accel sanitizer"):
            x.add_(1)
    torch.accel.synchronize()
    assert sorted(set(x.flatten().tolist())) == [2, 3]


def test_pinned_memory_that_is_given_out_again():
    with sanitizer.enabled():
        for step in range(20):
            host = torch.full(
                (1 << 16,), float(step)
            ).pin_memory()  # written by the host, in a block that was used before
            host.to("accel", non_blocking=True)
            del host
    torch.accel.synchronize()


def test_memory_of_the_same_stream_is_given_out_again():
    with sanitizer.enabled():
        for _ in range(3):
            x = torch.ones(1 << 20, device="accel")
            x = F.relu(x) + 1
            del x


def test_what_is_kept_does_not_grow():
    torch.manual_seed(0)
    program = decoder_lm.Program("accel", steps=12)
    kept = []
    with sanitizer.enabled():
        for (batch,) in program.batches:
            program.step(batch)
            kept.append(_C._sanitizer_stats()[0])
    assert max(kept[6:]) <= 1.2 * max(kept[2:6])


def test_a_fallback_is_seen():
    side = torch.accel.Stream()
    x = torch.ones(8, device="accel")
    torch.accel.synchronize()
    with sanitizer.enabled():
        with torch.accel.stream(side):
            x.mul_(2)
        with pytest.raises(RuntimeError, match="accel sanitizer: histc on the default stream"):
            torch.histc(x, 4)  # without a range it falls back
    side.synchronize()
