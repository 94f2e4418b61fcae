"""What a capture refuses, and what it says."""

import contextlib
import gc

import pytest
import torch

from tests.captures import captured

DEVICE = "accel"


def numpy_kernel():
    @torch.library.custom_op("graphs_test::double", mutates_args=(), device_types="cpu")
    def double(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy() * 2)

    return double


X = torch.ones
ILLEGAL = {
    "item": (lambda x: x.sum().item(), r"_local_scalar_dense \(item\): operation not permitted when stream is capt"),
    "bool": (lambda x: bool(x.sum() > 0), r"_local_scalar_dense \(item\): operation not permitted when stream"),
    "synchronize": (lambda x: torch.accel.synchronize(), "torch.accel.synchronize: operation not permitted"),
    "stream": (lambda x: torch.accel.current_stream().synchronize(), "Stream.synchronize: operation not permitted"),
    "query": (lambda x: torch.accel.current_stream().query(), "accelStreamQuery: operation not permitted"),
    "other stream": (
        lambda x: torch.accel.default_stream().synchronize(),
        "Stream.synchronize: operation not permitted",
    ),
    "event": (lambda x: torch.accel.current_stream().record_event().synchronize(), "an event last recorded in a capt"),
    "outside event": (lambda x: torch.accel.current_stream().wait_event(OUTSIDE[0]), "recorded outside of the capture"),
    "cpu": (lambda x: x.cpu(), "Cannot copy between CPU and accel tensors during accel graph capture unless the CPU"),
    "to accel": (lambda x: torch.ones(3).to(DEVICE), "Cannot copy between CPU and accel tensors during accel graph"),
    "pinned": (lambda x: x.copy_(PINNED[0]), "copy_: operation not permitted when stream is capturing"),
    "nonzero": (lambda x: x.nonzero(), "operation not permitted when stream is capturing"),
    "unique": (lambda x: torch.unique(x), r"_unique2 \(fallback\): operation not permitted when stream is capturing"),
    "empty_cache": (lambda x: torch.accel.empty_cache(), "empty_cache: operation not permitted"),
}
OUTSIDE, PINNED = [], []
ILLEGAL["interprocess event"] = (
    lambda x: torch.accel.Event(interprocess=True).record(),
    "accelEventRecord: operation not permitted when stream is capturing",
)
# Raised by a check of the argument, as by torch.cuda: the capture is as good as before.
HARMLESS = {"cpu", "to accel"}


@pytest.mark.parametrize("call", ILLEGAL)
def test_calls_that_wait_raise_and_name_themselves(call):
    OUTSIDE[:] = [torch.accel.default_stream().record_event()]
    PINNED[:] = [torch.ones(3).pin_memory()]
    x = torch.ones(3, device=DEVICE)
    run, text = ILLEGAL[call]
    graph = torch.accel.AccelGraph()
    spoilt = pytest.raises(torch.AcceleratorError, match="due to a previous error during capture.*" + text)
    with contextlib.nullcontext() if call in HARMLESS else spoilt, torch.accel.graph(graph):
        y = x + 1
        with pytest.raises(RuntimeError, match=text):
            run(x)
    if call in HARMLESS:
        graph.replay()
        assert y.tolist() == [2, 2, 2]
    # Process, stream and graph are usable.
    assert torch.accel.current_stream() == torch.accel.default_stream()
    graph.reset()
    with torch.accel.graph(graph):
        y = x * 2
    graph.replay()
    assert y.tolist() == [2, 2, 2]


def test_relaxed_allows_to_wait_for_others():
    x = torch.ones(3, device=DEVICE)
    assert x.tolist() == [1, 1, 1]

    def body():
        torch.accel.default_stream().synchronize()
        return x + 1

    graph, y = captured(body, capture_error_mode="relaxed")
    graph.replay()
    assert y.tolist() == [2, 2, 2]


def test_out_of_turn():
    graph = torch.accel.AccelGraph()
    with pytest.raises(RuntimeError, match="Called AccelGraph::replay without a preceding"):
        graph.replay()
    with pytest.raises(RuntimeError, match="must have been called before calling instantiate"):
        graph.instantiate()
    with pytest.raises(RuntimeError, match=r"Called AccelGraph::pool\(\) without a preceding successful capture."):
        graph.pool()
    with pytest.raises(RuntimeError, match="captured on a non-default stream"):
        graph.capture_begin()
    with pytest.raises(RuntimeError, match="without a preceding capture_begin"):
        graph.capture_end()
    with pytest.raises(RuntimeError, match="Expected `global`, `thread_local`, or `relaxed`, got strict"):
        captured(lambda: None, capture_error_mode="strict")
    with pytest.warns(UserWarning, match="The accel Graph is empty"), torch.accel.graph(graph):
        pass
    with pytest.raises(RuntimeError, match="already owns a captured graph"), torch.accel.graph(graph):
        pass
    with pytest.raises(RuntimeError, match="by the user only when keep_graph=true"):
        graph.instantiate()
    assert torch.accel.current_stream() == torch.accel.default_stream()


def test_capture_must_end_on_its_stream():
    graph = torch.accel.AccelGraph()
    stream = torch.accel.Stream()
    with torch.accel.stream(stream):
        graph.capture_begin()
        y = torch.ones(2, device=DEVICE)
        with torch.accel.stream(torch.accel.Stream()), pytest.raises(RuntimeError, match="end on the same stream"):
            graph.capture_end()
        graph.capture_end()
    graph.replay()
    assert y.tolist() == [1, 1]


def test_a_graph_forgotten_in_its_capture_lets_the_stream_go():
    stream = torch.accel.Stream()
    with torch.accel.stream(stream):
        graph = torch.accel.AccelGraph()
        graph.capture_begin()
        del graph
        gc.collect()
        assert not torch.accel.is_current_stream_capturing()
        assert torch.ones(2, device=DEVICE).tolist() == [1, 1]
