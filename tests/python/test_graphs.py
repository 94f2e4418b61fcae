"""torch.accel's graphs, as torch.cuda's: capture, replay, and what a graph keeps."""

import gc

import pytest
import torch

import torch_accel
from tests.captures import captured
from torch_accel.testing import hold_stream, launch_blocking

DEVICE = "accel"


def test_replays_compute_on_the_tensors_of_the_capture():
    x = torch.arange(6.0, device=DEVICE)
    graph, y = captured(lambda: (x * 2).sin() + x)
    for start in (0.0, 10.0):
        x.copy_(torch.arange(6.0) + start)
        graph.replay()
        expected = ((torch.arange(6.0) + start) * 2).sin() + (torch.arange(6.0) + start)
        assert torch.equal(y.cpu(), expected)


def test_nothing_runs_during_the_capture():
    x = torch.zeros(3, device=DEVICE)
    graph, _ = captured(lambda: x.add_(1))
    assert x.tolist() == [0, 0, 0]
    graph.replay()
    assert x.tolist() == [1, 1, 1]


def test_captures_of_one_device_share_a_stream():
    streams = []
    for _ in range(2):
        captured(lambda: streams.append(torch.accel.current_stream()))
    assert streams == [torch.accel.graph.default_capture_streams[0]] * 2
    other = torch.accel.Stream()
    captured(lambda: streams.append(torch.accel.current_stream()), stream=other)
    assert streams[2] == other


def test_replays_are_queued(queued):
    x = torch.zeros(3, device=DEVICE)
    graph, _ = captured(lambda: x.add_(1))
    with hold_stream():
        for _ in range(5):
            graph.replay()
    assert x.tolist() == [5, 5, 5]


def test_the_face_of_torch_accelerator():
    x = torch.ones(3, device=DEVICE)
    graph = torch.accelerator.Graph()
    with torch.Stream(DEVICE), graph:
        x += 1
    graph.replay()
    graph.replay()
    assert x.tolist() == [3, 3, 3]
    assert graph.pool()[0] > 0
    graph.reset()


def test_a_stream_says_that_it_captures():
    assert not torch.accel.is_current_stream_capturing()

    def body():
        assert torch.accel.is_current_stream_capturing()
        assert torch.accelerator.current_stream().is_capturing()
        assert not torch.accel.default_stream().is_capturing()
        return torch.ones(1, device=DEVICE)

    captured(body)
    assert not torch.accel.is_current_stream_capturing()


def test_other_streams_join_by_events():
    side = torch.accel.Stream()
    x = torch.ones(4, device=DEVICE)

    def fork():
        main = torch.accel.current_stream()
        y = x + 1
        side.wait_stream(main)
        with torch.accel.stream(side):
            z = y * 3
        w = y * 5
        main.wait_stream(side)
        return z + w

    graph, out = captured(fork, keep_graph=True)
    data = graph.get_graph_data()["nodes"]
    by_name = {node["index"]: node for node in data if node["kernel_name"] != "memset"}
    assert [node["kernel_name"] for node in by_name.values()] == ["add", "mul", "mul", "add"]
    graph.replay()
    assert out.tolist() == [16] * 4


def test_a_forgotten_join_is_an_error():
    side = torch.accel.Stream()
    x = torch.ones(4, device=DEVICE)

    def fork():
        side.wait_stream(torch.accel.current_stream())
        with torch.accel.stream(side):
            return x * 3

    with pytest.raises(torch.AcceleratorError, match="not joined back"):
        captured(fork)
    assert torch.accel.current_stream() == torch.accel.default_stream()
    assert (x + 1).tolist() == [2] * 4


def test_keep_graph_and_debug_dump(tmp_path):
    x = torch.ones(3, device=DEVICE)
    graph, y = captured(lambda: (x + 1).mul_(2), keep_graph=True)
    graph.instantiate()
    graph.replay()
    assert y.tolist() == [4, 4, 4]
    nodes = [n for n in graph.get_graph_data()["nodes"] if n["kernel_name"] != "memset"]
    assert [(n["kernel_name"], n["node_type"]) for n in nodes] == [("add", "kernel"), ("mul", "kernel")]
    for node in graph.get_graph_data()["nodes"]:
        assert node["dependencies"] == ([node["index"] - 1] if node["index"] else [])
    path = tmp_path / "graph.dot"
    graph.debug_dump(str(path))
    text = path.read_text()
    assert text.startswith("digraph accel_graph {\n") and "add" in text and " -> " in text

    plain, _ = captured(lambda: x + 1)
    with pytest.warns(UserWarning, match="debug not enabled"):
        plain.debug_dump(str(path))
    with pytest.raises(RuntimeError, match="keep_graph=true"):
        plain.get_graph_data()


def test_host_scalars_are_constants_and_pinned_memory_is_read_at_each_replay():
    scalar, pinned = torch.tensor(3.0), torch.full((2,), 5.0).pin_memory()
    x = torch.ones(2, device=DEVICE)

    def body():
        x.copy_(pinned, non_blocking=True)
        return x * scalar

    graph, y = captured(body)
    scalar.fill_(0)
    pinned.fill_(7)
    graph.replay()
    assert y.tolist() == [21, 21]


def test_results_outlive_their_graph():
    x = torch.ones(1000, device=DEVICE)
    graph, y = captured(lambda: x * 2)
    graph.replay()
    del graph
    gc.collect()
    others = [torch.zeros(1000, device=DEVICE) for _ in range(8)]
    assert y.sum().item() == 2000
    assert all(o.sum().item() == 0 for o in others)


def test_reset_waits_for_replays(queued):
    """Their memory may go to others, so a graph cannot be let go before they have run."""
    x = torch.zeros(3, device=DEVICE)
    graph, _ = captured(lambda: x.add_(1))
    before = torch_accel.testing.wait_report().get("AccelGraph.reset", 0)
    torch.accel._sleep(20_000_000)
    graph.replay()
    graph.reset()
    assert torch_accel.testing.wait_report().get("AccelGraph.reset", 0) == before + 1
    assert x.tolist() == [1, 1, 1]


def test_a_failing_kernel_is_named_at_each_replay(queued):
    index = torch.tensor([0, 7], device=DEVICE)
    x = torch.arange(3.0, device=DEVICE)
    graph, _ = captured(lambda: x.index_select(0, index))
    for _ in range(2):
        graph.replay()
        with pytest.raises(torch.AcceleratorError, match="index_select"):
            torch.accel.synchronize()
    index.fill_(1)
    graph.replay()
    torch.accel.synchronize()


def test_blocking_launches_do_not_disturb_a_capture():
    with launch_blocking(True):
        x = torch.ones(3, device=DEVICE)
        graph, y = captured(lambda: x + 1)
        graph.replay()
        assert y.tolist() == [2, 2, 2]


def test_a_second_device(script):
    script(
        """
        import torch
        x = torch.ones(3, device="accel:1")
        graph = torch.accel.AccelGraph()
        with torch.accel.device(1):
            with torch.accel.graph(graph):
                y = x + torch.rand_like(x) * 0
        torch.accel.default_generators[1].manual_seed(0)
        graph.replay()  # on its device's stream, whatever the current device
        assert y.tolist() == [1, 1, 1]
        assert torch.accel.current_device() == 0
        assert torch.accel.default_generators[1].get_offset() == 4
        """,
        ACCEL_DEVICES=2,
    )
