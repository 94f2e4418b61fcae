"""Captures a function's work as a graph, for tests."""

import torch


def captured(body, **options):
    """(graph, result of ``body()``), captured."""
    graph = torch.accel.AccelGraph(options.pop("keep_graph", False))
    with torch.accel.graph(graph, **options):
        result = body()
    return graph, result


def bits(*tensors):
    return [t.cpu() for t in tensors]
