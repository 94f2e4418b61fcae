"""A forked child touches nothing, and using accel there raises torch.cuda's words."""

import pytest
from expecttest import assert_expected_inline

CHILD = """
import faulthandler, os, signal, sys, threading, torch
faulthandler.cancel_dump_traceback_later()  # a child that exits would wait for the watchdog's thread, which it has not

def in_child(use):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        try:
            use()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        sys.exit(0)  # with all of Python's and C's exit handlers
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


@pytest.mark.parametrize("poison", ["0", "1"])
def test_fork_with_live_tensors_while_another_thread_enqueues(script, poison):
    script(
        CHILD
        + """
kept = [torch.full((1000,), i, device="accel") for i in range(50)]
stop = threading.Event()

warm = threading.Event()

def enqueue():
    x = torch.zeros(100, device="accel")
    while not stop.is_set():
        x = x + 1
        torch.zeros(10, device="accel")
        warm.set()

thread = threading.Thread(target=enqueue)
thread.start()
# A fork in the middle of torch's own first use of a CPU kernel leaves that kernel locked in the child.
torch.ones(3).sum()
warm.wait()

def use():
    kept.clear()
    assert torch.ones(3).sum() == 3
    assert torch.accel._is_in_bad_fork() and not torch.accel.is_initialized()

try:
    for _ in range(10):
        assert in_child(use) == 0
finally:
    stop.set()
thread.join()
assert [int(t[0]) for t in kept] == list(range(50))
""",
        ACCEL_POISON=poison,
    )


def test_use_in_the_child_raises(script):
    result = script(
        CHILD
        + """
x = torch.ones(3, device="accel")
s = torch.accel.current_stream()
e = torch.accel.Event(); e.record()
uses = [
    lambda: torch.ones(1, device="accel"),
    lambda: x + 1,
    lambda: x.cpu(),
    lambda: x.fill_(2),
    lambda: torch.accel.synchronize(),
    lambda: torch.accel.init(),
    lambda: torch.accel.get_rng_state(),
    lambda: torch.accel.memory.numpy(x),
    lambda: torch.accel.memory.arena(),
    lambda: s.synchronize(),
    lambda: e.synchronize(),
    lambda: e.record(),
    lambda: torch.accel.Stream().synchronize(),
    lambda: torch.ones(2, pin_memory=True),
]

def use():
    for use in uses:
        try:
            use()
        except RuntimeError as error:
            print(str(error).splitlines()[0])
        else:
            print("no error")
    torch.manual_seed(1); torch.accel.manual_seed(1)  # ignored, as without a device
    assert not torch.accel.is_available() and torch.accel.device_count() == 0
    sys.stdout.flush()

assert in_child(use) == 0
assert (x + 1).tolist() == [2, 2, 2]
"""
    )
    assert_expected_inline(
        "\n".join(sorted(set(result.stdout.splitlines()))),
        """\
Cannot re-initialize accel in forked subprocess. To use accel with multiprocessing, you must use the 'spawn' start method
Cannot use accel in a forked child process: use the 'spawn' start method""",
    )


def test_fork_before_initialisation(script):
    script(
        CHILD
        + """
assert torch.accel.is_available() and not torch.accel.is_initialized()

def use():
    assert not torch.accel._is_in_bad_fork()
    assert torch.ones(3, device="accel").sum().item() == 3

assert in_child(use) == 0
assert torch.ones(3, device="accel").sum().item() == 3
"""
    )


def test_dataloader_workers_fork(script):
    script("""
        import torch
        data = torch.utils.data.TensorDataset(torch.arange(32.0))
        x = torch.ones(4, device="accel")
        loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=2, pin_memory=True)
        total = sum(batch.to("accel", non_blocking=True).sum().item() for batch, in loader)
        assert total == sum(range(32)) and x.sum().item() == 4
    """)


def test_multiprocessing_fork(script):
    result = script("""
        import torch, torch.multiprocessing as mp
        torch.ones(1, device="accel")

        def work():
            torch.ones(1, device="accel")

        process = mp.get_context("fork").Process(target=work)
        process.start()
        process.join()
        assert process.exitcode == 1
    """)
    assert "Cannot re-initialize accel in forked subprocess" in result.stderr
