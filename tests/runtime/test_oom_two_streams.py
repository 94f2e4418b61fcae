"""Memory runs out inside a fallback while the memory is held by a stream that waits for the fallback's stream."""

SCRIPT = """
import torch
from torch_accel.testing import plant, hold_stream

MiB = 1 << 20
a, b = torch.accel.Stream(), torch.accel.Stream()
with torch.accel.stream(b):
    big = torch.empty(40 * MiB, dtype=torch.uint8, device="accel")
with torch.accel.stream(a):
    x = torch.arange(2 * MiB, dtype=torch.int64, device="accel")  # 16 MiB
    torch.accel.synchronize()
    # b's work waits for a; a's fallback needs memory that comes free when b's work is done.
    event = torch.accel.Event()
    event.record(a)
    b.wait_event(event)
    with torch.accel.stream(b):
        torch.accel._sleep(50_000_000)
        big.fill_(1)
    big.record_stream(b)
    del big
    {plant}
    y = x.flip(0)  # 16 MiB + 40 MiB cached by b > 64 MiB only with the sort's buffers
    values, indices = x.sort(descending=True)
assert torch.equal(values.cpu(), torch.arange(2 * MiB).flip(0))
assert torch.equal(y.cpu(), values.cpu())
print("right")
"""


def test_reclaims_and_is_right(script):
    assert "right" in script(SCRIPT.format(plant=""), ACCEL_MEMORY="64MiB").stdout


def test_fails_when_planted(script):
    done = script(SCRIPT.format(plant='plant("reclaim").__enter__()'), check=False, ACCEL_MEMORY="64MiB")
    assert "OutOfMemoryError" in done.stderr


def test_both_streams_fall_back_at_once(script):
    script(
        """
        import threading, torch
        MiB = 1 << 20
        a, b = torch.accel.Stream(), torch.accel.Stream()
        start = threading.Barrier(2)
        wrong = []

        def work(mine, other, seed):
            with torch.accel.stream(mine):
                x = torch.arange(MiB, dtype=torch.int64, device="accel") + seed
                start.wait()
                for _ in range(10):
                    event = torch.accel.Event()
                    event.record(mine)
                    other.wait_event(event)
                    values, _ = x.sort(descending=True)
                    if not torch.equal(values.cpu(), x.cpu().flip(0)):
                        wrong.append(seed)
                    del values

        threads = [threading.Thread(target=work, args=(a, b, 1)), threading.Thread(target=work, args=(b, a, 2))]
        for t in threads: t.start()
        for t in threads: t.join()
        assert not wrong
        """,
        ACCEL_MEMORY="64MiB",
    )
