"""Each entry point that waits lets other Python threads go on: one of them has to release the stream that it waits for."""

import pytest

WAITERS = {
    "synchronize": "torch.accel.synchronize()",
    "torch.accelerator.synchronize": "torch.accelerator.synchronize()",
    "Stream.synchronize": "torch.accel.current_stream().synchronize()",
    "Event.synchronize": "event = torch.accel.Event(); event.record(); event.synchronize()",
    "item": "x.sum().item()",
    "fallback": "x.nonzero()",
    "cpu": "x.cpu()",
    "copy_ from pinned": "x.copy_(pinned)",
    "copy_ from pageable": "x.copy_(large)",
    "print": "repr(x)",
    "storage.copy_": "x.untyped_storage().copy_(host.untyped_storage())",
    "storage.cpu": "x.untyped_storage().cpu()",
    "storage[i]": "x.untyped_storage()[0]",
    "torch.save": "torch.save(x, io.BytesIO())",
    "memory.numpy": "torch.accel.memory.numpy(x)",
    "empty_cache": "del y; torch.accel.empty_cache()",
    "numpy kernel": "twice(x)",
}

SCRIPT = """
import copy, io, sys, threading, time, torch
import torch_accel
from torch_accel.testing import hold_stream, plant, wait_report

@torch_accel.numpy_kernel("waits::twice(Tensor x) -> Tensor")
def twice(x):
    return x * 2

host = torch.ones(100_000)
large = torch.ones(100_000)
pinned = torch.ones(100_000, pin_memory=True)
sys.setswitchinterval(1000)  # nobody is made to give the GIL up: whoever waits has to let it go

def advance_during(statement):
    x = torch.zeros(100_000, device="accel")
    y = torch.zeros(8 << 20, device="accel")
    torch.accel.synchronize()
    waits = sum(wait_report().values())
    hold = hold_stream()
    hold.__enter__()
    x.fill_(1)
    y.fill_(1)

    def release():  # needs the GIL after the other thread has begun to wait
        while sum(wait_report().values()) == waits:
            time.sleep(0.001)
        hold.__exit__(None, None, None)

    thread = threading.Thread(target=release)
    thread.start()
    names = dict(globals(), x=x, y=y)
    del y
    exec(statement, names)
    thread.join()
"""


def test_other_threads_advance(script):
    # One process for all: the last name printed before a hang is the culprit.
    calls = "\n".join(
        f"advance_during({statement!r}); print({name!r}, flush=True)" for name, statement in WAITERS.items()
    )
    done = script(SCRIPT + calls, check=False)
    assert done.stdout.splitlines() == list(WAITERS), done.stderr


@pytest.mark.parametrize("name", ["storage.copy_", "storage[i]"])
def test_deadlock_when_the_gil_is_kept(script, name):
    # The planted fault: torch enters these with the GIL held, so the same script hangs, and its watchdog ends it.
    call = f"fault = plant('release_gil'); fault.__enter__(); advance_during({WAITERS[name]!r}); print('advanced')"
    done = script(SCRIPT + call, timeout=8, check=False)
    assert done.returncode != 0 and "Timeout" in done.stderr and "advanced" not in done.stdout


def test_waits_are_counted_by_caller(script):
    script("""
    import torch
    from torch_accel.testing import wait_report
    x = torch.ones(10, device="accel")
    before = wait_report().get("item", 0)
    torch.accel._sleep(20_000_000)
    x[0].item()
    assert wait_report()["item"] == before + 1
    """)
