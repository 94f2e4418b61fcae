"""Each entry point that waits lets other Python threads go on: one of them has to release the stream that it waits for."""

import pytest

WAITERS = {
    "synchronize": "torch.accel.synchronize()",
    "torch.accelerator.synchronize": "torch.accelerator.synchronize()",
    "Stream.synchronize": "torch.accel.current_stream().synchronize()",
    "Event.synchronize": "event = torch.accel.Event(); event.record(); event.synchronize()",
    "item": "x.sum().item()",
    "fallback": "x.sort()",
    "cpu": "x.cpu()",
    "copy_ from pinned": "x.copy_(pinned)",
    "copy_ from pageable": "x.copy_(large)",
    "print": "repr(x)",
    "storage.copy_": "x.untyped_storage().copy_(host.untyped_storage())",
    "storage.cpu": "x.untyped_storage().cpu()",
    "storage[i]": "x.untyped_storage()[0]",
    "torch.save": "torch.save(x, io.BytesIO())",
    "deepcopy": "copy.deepcopy(x)",
    "memory.numpy": "torch.accel.memory.numpy(x)",
    "empty_cache": "del y; torch.accel.empty_cache()",
    "numpy kernel": "twice(x)",
}

SCRIPT = """
import copy, io, sys, threading, torch
import torch_accel
from torch_accel.testing import hold_stream, plant

@torch_accel.numpy_kernel("waits::twice(Tensor x) -> Tensor")
def twice(x):
    return x * 2

x = torch.zeros(100_000, device="accel")
y = torch.zeros(8 << 20, device="accel")
host = torch.ones(100_000)
large = torch.ones(100_000)
pinned = torch.ones(100_000, pin_memory=True)
torch.accel.synchronize()
hold = hold_stream()
hold.__enter__()
x.add_  # the attribute only: nothing is enqueued yet
x.fill_(1)
y.fill_(1)
entered = threading.Event()

def release():
    entered.wait()
    for _ in range(1000):  # this thread must get the GIL again and again
        pass
    hold.__exit__(None, None, None)

thread = threading.Thread(target=release)
thread.start()
sys.setswitchinterval(1000)  # nobody is made to give the GIL up: whoever waits has to let it go
{plant}
entered.set()
{statement}
thread.join()
print("advanced")
"""


@pytest.mark.parametrize("name", WAITERS)
def test_other_threads_advance(script, name):
    assert "advanced" in script(SCRIPT.format(plant="", statement=WAITERS[name])).stdout


def test_deadlock_when_the_gil_is_kept(script):
    # The planted fault: the same script hangs, and its watchdog ends it.
    source = SCRIPT.format(plant='plant("release_gil").__enter__()', statement=WAITERS["storage.copy_"])
    done = script(source, timeout=5, check=False)
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
