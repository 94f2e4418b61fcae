"""The memory of graphs: pools, and what is freed or runs out in a capture."""

import torch

from tests.captures import captured

DEVICE = "accel"


def test_memory_of_a_graph_is_its_own():
    """Between replays nobody else gets what the graph's temporaries and results use."""
    x = torch.randn(5000, device=DEVICE)
    graph, y = captured(lambda: ((x * 2).exp() - 1).relu())
    expected = ((x * 2).exp() - 1).relu()
    for _ in range(3):
        others = [torch.full((5000,), float("nan"), device=DEVICE) for _ in range(10)]
        graph.replay()
        del others
        assert torch.equal(y.cpu(), expected.cpu())


def test_a_pool_shared_by_two_graphs():
    pool = torch.accel.graph_pool_handle()
    x = torch.ones(300_000, device=DEVICE)
    first, y = captured(lambda: (x + 1) * 2, pool=pool)
    segments = [segment["address"] for segment in torch.accel.memory_snapshot(pool)]
    second, z = captured(lambda: (y + 1) * 2, pool=first.pool())
    assert first.pool() == second.pool() == pool
    # The temporary of the first serves the second.
    assert [segment["address"] for segment in torch.accel.memory_snapshot(pool)] == segments != []
    for value in (1, 5):
        x.fill_(value)
        first.replay()
        second.replay()
        assert z.unique().tolist() == [((value + 1) * 2 + 1) * 2]


def test_a_released_pool_goes_back_to_the_chip():
    graph, y = captured(lambda: torch.zeros(4_000_000, device=DEVICE))
    del y
    torch.accel.empty_cache()
    held = torch.accel.memory_reserved()
    assert held >= 16_000_000  # the graph still needs it
    graph.reset()
    torch.accel.empty_cache()
    assert torch.accel.memory_reserved() <= held - 16_000_000


def test_freeing_foreign_memory_in_a_capture_leaves_no_trace():
    """Such a block is not the graph's: replays must not touch its next user's bytes."""
    stream = torch.accel.Stream()
    with torch.accel.stream(stream):
        foreign = torch.ones(1000, device=DEVICE)
        x = torch.ones(3, device=DEVICE)
    torch.accel.synchronize()
    graph = torch.accel.AccelGraph()
    with torch.accel.graph(graph, stream=stream):
        y = x + 1
        del foreign
    with torch.accel.stream(stream):
        next_user = torch.full((1000,), 3.0, device=DEVICE)
        graph.replay()
        assert (next_user == 3).all().item()
        assert y.tolist() == [2, 2, 2]


def test_memory_runs_out_in_a_capture(script):
    """The allocator may wait there for what others have freed, and otherwise says what it says always."""
    script(
        """
        import torch
        MIB = 1 << 20
        freed = torch.empty(40 * MIB, dtype=torch.uint8, device="accel")
        torch.accel._sleep(50_000_000)
        freed.fill_(1)
        del freed  # queued work still uses it
        graph = torch.accel.AccelGraph()
        with torch.accel.stream(torch.accel.Stream()):
            graph.capture_begin()
            y = torch.empty(40 * MIB, dtype=torch.uint8, device="accel").fill_(2)
            try:
                torch.empty(40 * MIB, device="accel")
            except torch.OutOfMemoryError:
                pass
            else:
                raise AssertionError
            graph.capture_end()
            graph.replay()
            assert y.sum().item() == 80 * MIB
        del y
        graph.reset()
        assert torch.ones(40 * MIB, dtype=torch.uint8, device="accel").sum().item() == 40 * MIB
        """,
        ACCEL_MEMORY="64MiB",
    )


def test_threads_that_do_not_capture(script):
    """In the mode thread_local they may wait, in the mode global they may not."""
    script(
        """
        import threading
        import torch
        x = torch.ones(3, device="accel")
        def in_a_thread():
            caught = []
            def run():
                try:
                    x.sum().item()
                except torch.AcceleratorError as error:
                    caught.append(str(error))
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
            return caught
        graph = torch.accel.AccelGraph()
        with torch.accel.graph(graph, capture_error_mode="thread_local"):
            y = x + 1
            assert in_a_thread() == []
        graph.reset()
        try:
            with torch.accel.graph(graph):
                y = x + 1
                (text,) = in_a_thread()
                assert "item" in text and "another one in global mode" in text, text
        except torch.AcceleratorError as error:
            assert "due to a previous error during capture" in str(error), error
        else:
            raise AssertionError
        assert in_a_thread() == []
        """
    )
