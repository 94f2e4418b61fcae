"""Fallbacks of several host threads on one stream: the ticket rule keeps their memory apart."""

import threading

import pytest
import torch

from torch_accel.testing import plant

THREADS, ROUNDS = 4, 900


def mismatches(rounds: int) -> int:
    """Each thread computes with results of its own only; returns how many differ from the CPU's."""
    wrong = [0] * THREADS
    start = threading.Barrier(THREADS)

    def work(thread: int) -> None:
        host = torch.arange(64 * 64, dtype=torch.float32).reshape(64, 64) + thread
        device = host.to("accel")
        everything = torch.ones_like(device, dtype=torch.bool)
        start.wait()
        for i in range(rounds):
            result = (device + i).masked_select(everything)  # a fallback: the worker allocates it
            kept = torch.empty_like(result).copy_(result)  # queued: reads `result` later
            del result  # its block is free in enqueue order, while the copy may not have run
            wrong[thread] += not torch.equal(kept.cpu(), host.flatten() + i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(wrong)


def test_no_mismatch():
    assert mismatches(ROUNDS) == 0


@pytest.mark.usefixtures("queued")
def test_mismatches_without_the_ticket_rule():
    # By construction, not by luck: see test_ticket_rule.py. Here the stress shows that it can see the rule broken.
    with plant("ticket_rule"):
        for _ in range(10):
            if mismatches(ROUNDS):
                return
    pytest.fail("the stress does not notice that the ticket rule is gone")
