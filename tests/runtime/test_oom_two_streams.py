"""Memory runs out inside a fallback while the memory is held by a stream that waits for the fallback's stream."""

SCRIPT = """
import threading, time, torch
from torch_accel.testing import hold_stream, plant, wait_report

MiB = 1 << 20
a, b = torch.accel.Stream(), torch.accel.Stream()
with torch.accel.stream(b):
    big = torch.empty(36 * MiB, dtype=torch.uint8, device="accel")
with torch.accel.stream(a):
    x = torch.ones(3 * MiB // 2, 1, dtype=torch.int64, device="accel")  # 12 MiB
    torch.accel.synchronize()
    # b waits for what a does next, and a's fallback needs the memory that b still uses.
    hold = hold_stream(b)
    hold.__enter__()
    event = torch.accel.Event()
    event.record(a)
    b.wait_event(event)
    with torch.accel.stream(b):
        big.fill_(1)
        del big

    def release():
        # b goes on only when the host waits for it. A worker that waited instead would never be seen here.
        while not wait_report().get("fallback.reclaim"):
            time.sleep(0.001)
        hold.__exit__(None, None, None)

    threading.Thread(target=release, daemon=True).start()
    {plant}
    indices = x.nonzero()  # 24 MiB: more than the 16 left beside b's 36
assert torch.equal(indices.cpu()[:, 0], torch.arange(3 * MiB // 2))
print("right")
"""


def test_reclaims_and_is_right(script):
    assert "right" in script(SCRIPT.format(plant=""), ACCEL_MEMORY="64MiB").stdout


def test_fails_when_planted(script):
    done = script(SCRIPT.format(plant='fault = plant("reclaim"); fault.__enter__()'), check=False, ACCEL_MEMORY="64MiB")
    assert "OutOfMemoryError" in done.stderr


def test_both_streams_fall_back_at_once(script):
    script(
        """
        import threading, torch, torch_accel
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
                    indices = x.nonzero()
                    if not torch.equal(indices.cpu()[:, 0], x.cpu() - seed):
                        wrong.append(seed)
                    del indices

        threads = [threading.Thread(target=work, args=(a, b, 1)), threading.Thread(target=work, args=(b, a, 2))]
        for t in threads: t.start()
        for t in threads: t.join()
        assert not wrong
        """,
        ACCEL_MEMORY="64MiB",
    )
