"""A process ends cleanly whatever is alive: tensors, streams, events, held streams, threads that wait."""

import pytest
import torch

from torch_accel._native import _C
from torch_accel.testing import hold_stream, wait_report

ALIVE = {
    "tensors": "x = torch.ones(1000, device='accel'); y = x.sort()",
    "queued work": "x = torch.ones(1000, device='accel'); torch.accel._sleep(10**12); x.fill_(2)",
    "a held stream": "hold = hold_stream(); hold.__enter__(); x = torch.ones(1000, device='accel')",
    "events and streams": "s = torch.accel.Stream(); e = torch.accel.Event(enable_timing=True); e.record(s)",
    "autograd threads": "x = torch.ones(10, device='accel', requires_grad=True); (x * x).sum().backward()",
    "a pinned copy": "x = torch.empty(1000, device='accel'); torch.accel._sleep(10**12);"
    " x.copy_(torch.ones(1000).pin_memory(), non_blocking=True)",
    "a thread that waits": "hold = hold_stream(); hold.__enter__();"
    " t = threading.Thread(target=torch.accel.synchronize, daemon=True); t.start(); t.join(0.2)",
}


@pytest.mark.parametrize("name", ALIVE)
def test_clean_exit(script, name):
    done = script(f"import threading, torch\nfrom torch_accel.testing import hold_stream\n{ALIVE[name]}\n")
    assert done.stderr == ""


def test_settling_the_engine_waits_for_no_stream(queued):
    torch.ones(3, device="accel", requires_grad=True).sum().backward()
    before = wait_report()
    with hold_stream():
        _C._settle_engine()
        assert wait_report() == before


@pytest.mark.parametrize(("work", "started"), [("", False), (".backward()", True)])
def test_an_exit_starts_no_autograd_threads(script, work, started):
    done = script(
        f"""
        import atexit, torch
        from torch_accel._compat import autograd_threads
        atexit.register(lambda: print(autograd_threads()))  # runs after what accel registers later
        torch.ones(3, device="accel", requires_grad=True).sum(){work}
        """
    )
    assert done.stdout == f"{started}\n"


@pytest.mark.full
def test_the_engine_lets_go_of_the_last_graph(script):
    """Without _lazy._settle_engine some of these end by std::terminate: the engine's thread then frees a Python object late."""
    source = "import os, torch; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); " + ALIVE["autograd threads"]
    for _ in range(60):
        script(source)
