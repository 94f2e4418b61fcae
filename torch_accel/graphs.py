"""Graphs of captured work, as torch.cuda.graphs has them: capture once, replay without dispatch."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ._graph_liveness import InputLiveness
from ._lazy import lazy_init
from ._native import _C
from .memory import empty_cache, empty_host_cache
from .streams import Stream
from .streams import stream as stream_context

__all__ = [
    "AccelGraph",
    "graph",
    "graph_pool_handle",
    "is_current_stream_capturing",
    "make_graphed_callables",
]

_PoolHandle = tuple[int, int]
# accelEngine -> node type, in the words of CUDAGraph.get_graph_data.
_NODE_TYPES = ("kernel", "memcpy", "host")


def is_current_stream_capturing() -> bool:
    """True while the current stream is part of a capture. Does not initialise accel."""
    return _C._is_current_stream_capturing()


def graph_pool_handle() -> _PoolHandle:
    """The id of a new memory pool, to be shared by the captures that are given it."""
    return _C._graph_pool_handle()


def _check_capturable(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    # torch asks this of cuda and xpu only: a step count on the host would be the same at each replay.
    if is_current_stream_capturing() and not all(group.get("capturable", True) for group in optimizer.param_groups):
        raise RuntimeError(
            f"Attempting ACCEL graph capture of step() for an instance of {type(optimizer).__name__} "
            "but param_groups' capturable is False."
        )


class AccelGraph(_C._AccelGraph):
    """Captured work of a stream, replayed as one launch. Follows torch.cuda.CUDAGraph.

    While its stream captures, operators run on the host as always, and their launches are kept instead of executed. Work on
    another stream belongs to the capture from where that stream waits for an event of the capture; it must be joined back
    in the same way. Tensors made meanwhile lie in a memory pool of the graph and stay where they are: replays read and
    write the same addresses. Each replay draws new random numbers, those that the calls would have drawn eagerly.

    Args:
        keep_graph: keep the captured graph after :meth:`capture_end`, for :meth:`get_graph_data`, and leave
            :meth:`instantiate` to the caller or the first :meth:`replay`.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        lazy_init()
        super().__init__(keep_graph)
        self._hook: Any = None
        self._liveness: InputLiveness | None = None

    def capture_begin(
        self,
        pool: _PoolHandle | None = None,
        capture_error_mode: str = "global",
        check_input_liveness: bool = False,
    ) -> None:
        """Begins a capture on the current stream, which must not be the default one.

        Args:
            pool: memory pool to share with other graphs: :func:`graph_pool_handle` or another graph's :meth:`pool`.
            capture_error_mode: whom the capture forbids to wait for a device: ``global`` every thread,
                ``thread_local`` this one, ``relaxed`` none. The capturing streams themselves nobody can wait for.
            check_input_liveness: make :meth:`replay` raise if a tensor that the capture used, and did not make, is gone.
                Costs a Python call for each captured operator.

        Raises:
            RuntimeError: the graph holds a capture already, the stream is the default one, another capture uses the pool,
                or the mode is unknown.
        """
        super().capture_begin(pool=pool, capture_error_mode=capture_error_mode)
        self._hook = register_optimizer_step_pre_hook(_check_capturable)
        self._liveness = InputLiveness().__enter__() if check_input_liveness else None

    def capture_end(self) -> None:
        """Ends the capture, on the stream and the thread that began it.

        Raises:
            torch.AcceleratorError: an illegal call spoilt the capture (the text names it), or a stream that took part was
                not joined back. The stream then captures no longer.
        """
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
            if self._liveness is not None:
                self._liveness.__exit__(None, None, None)
        super().capture_end()

    def instantiate(self) -> None:
        """Makes the graph ready for :meth:`replay`; only needed, and allowed, with ``keep_graph=True``."""
        super().instantiate()

    def replay(self) -> None:
        """Enqueues the captured work on the current stream, behind the graph's earlier replays.

        Raises:
            RuntimeError: with ``check_input_liveness``, a tensor that the capture used is gone; the text has the stacks.
        """
        if self._liveness is not None:
            self._liveness.check()
        super().replay()

    def reset(self) -> None:
        """Lets go of the captured work and the memory pool, after the unfinished replays; the graph can capture again."""
        self._liveness = None
        super().reset()

    def pool(self) -> _PoolHandle:
        """The id of the graph's memory pool."""
        return super().pool()

    def register_generator_state(self, generator: torch.Generator) -> None:
        """Accepted for torch.cuda's sake: a generator that draws during the capture is registered by that."""
        super().register_generator_state(generator)

    def enable_debug_mode(self) -> None:
        """Keeps what :meth:`debug_dump` shows."""
        super().enable_debug_mode()

    def debug_dump(self, debug_path: str) -> None:
        """Writes the graph to ``debug_path`` in the language of Graphviz; needs ``enable_debug_mode()`` or ``keep_graph``."""
        super().debug_dump(debug_path)

    def get_graph_data(self) -> dict[str, list[dict[str, Any]]]:
        """The nodes of the graph, with the keys of CUDAGraph.get_graph_data that have a meaning here.

        Each has ``index``, ``node_type`` (kernel, memcpy or host), ``kernel_name``, ``dependencies`` and ``dependents``.

        Raises:
            RuntimeError: the graph is not kept (``keep_graph=True``).
        """
        nodes: list[dict[str, Any]] = [
            {
                "index": index,
                "node_type": _NODE_TYPES[node.engine],
                "kernel_name": node.name,
                "dependencies": list(node.dependencies),
                "dependents": [],
            }
            for index, node in enumerate(self._nodes())
        ]
        for node in nodes:
            for before in node["dependencies"]:
                nodes[before]["dependents"].append(node["index"])
        return {"nodes": nodes}


class graph:
    """Context manager that captures the work of its body into an :class:`AccelGraph`. Follows torch.cuda.graph.

    Args:
        accel_graph: the graph.
        pool: memory pool to share, see :meth:`AccelGraph.capture_begin`.
        stream: the stream to capture; by default one of this class's own for each device.
        capture_error_mode: see :meth:`AccelGraph.capture_begin`.
        check_input_liveness: see :meth:`AccelGraph.capture_begin`.
    """

    default_capture_streams: dict[int, Stream] = {}

    def __init__(
        self,
        accel_graph: AccelGraph,
        pool: _PoolHandle | None = None,
        stream: torch.Stream | None = None,
        capture_error_mode: str = "global",
        check_input_liveness: bool = False,
    ) -> None:
        if stream is None:
            index = _C._current_device()
            streams = type(self).default_capture_streams
            stream = streams[index] if index in streams else streams.setdefault(index, Stream())
        self.pool = pool
        self.capture_stream = stream
        self.stream_ctx = stream_context(stream)
        self.accel_graph = accel_graph
        self.capture_error_mode = capture_error_mode
        self.check_input_liveness = check_input_liveness

    def __enter__(self) -> None:
        torch.accelerator.synchronize()
        if torch.compiler.config.force_cudagraph_gc:
            gc.collect()
        empty_cache()
        empty_host_cache()
        self.stream_ctx.__enter__()
        try:
            self.accel_graph.capture_begin(self.pool, self.capture_error_mode, self.check_input_liveness)
        except BaseException:
            self.stream_ctx.__exit__()
            raise

    def __exit__(self, *exc_info: object) -> None:
        try:
            self.accel_graph.capture_end()
        finally:
            self.stream_ctx.__exit__(*exc_info)


_Callable = Callable[..., Any]


def make_graphed_callables(
    callables: _Callable | tuple[_Callable, ...],
    sample_args: tuple[Any, ...],
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: _PoolHandle | None = None,
) -> Any:
    """Versions of functions or modules whose forward and backward each replay a graph. Follows torch.cuda's function.

    The results are drop-in replacements in a training loop with the arguments' shapes, dtypes and ``requires_grad`` of
    ``sample_args``. They are overwritten by the next call, and have no second derivatives. A module keeps its own
    forward for the other one of its modes (training or evaluation).

    Args:
        callables: a callable, or a tuple of callables in the order of their use; these share one memory pool.
        sample_args: the tensors to call it with, or a tuple of such tuples.
        num_warmup_iters: eager runs before the captures.
        allow_unused_input: whether an input may have no gradient.
        pool: memory pool to share, see :meth:`AccelGraph.capture_begin`.

    Raises:
        RuntimeError: autocast is on and caches its casts.
        AssertionError: a module has hooks or trainable buffers, or an argument is no tensor.
    """
    if torch.is_autocast_enabled("accel") and torch.is_autocast_cache_enabled():
        raise RuntimeError(
            "make_graphed_callables does not support the autocast caching. Please set `cache_enabled=False`."
        )
    if not isinstance(callables, tuple):
        return make_graphed_callables((callables,), (sample_args,), num_warmup_iters, allow_unused_input, pool)[0]

    sections = [_Section(func, args, allow_unused_input) for func, args in zip(callables, sample_args)]
    pool = graph_pool_handle() if pool is None else pool
    torch.accelerator.synchronize()
    with stream_context(Stream()):  # lazy initialisation must not be captured
        for section in sections:
            for _ in range(num_warmup_iters):
                section.run()
    torch.accelerator.synchronize()
    # In the order of the replays, so that none overwrites what another still needs.
    for section in sections:
        section.capture_forward(pool)
    for section in reversed(sections):
        section.capture_backward(pool)
    return tuple(section.graphed() for section in sections)


class _Section:
    """One callable of make_graphed_callables: its graphs and the tensors that these read and write."""

    def __init__(self, func: _Callable, args: tuple[Any, ...], allow_unused: bool) -> None:
        leaves = torch.utils._pytree.arg_tree_leaves(*args)
        if not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
            raise AssertionError(
                "In the beta API, sample_args for each callable must contain only Tensors. Other types are not allowed."
            )
        self.parameters: tuple[torch.Tensor, ...] = ()
        if isinstance(func, torch.nn.Module):
            if func._backward_hooks or func._forward_hooks or func._forward_pre_hooks:
                raise AssertionError(
                    "Modules must not have hooks registered at the time they are passed. However, registering hooks "
                    "on modules after passing them through make_graphed_callables is allowed."
                )
            if any(buffer.requires_grad for buffer in func.buffers()):
                raise AssertionError(
                    "In any :class:`~torch.nn.Module` passed to :func:`~make_graphed_callables`, only parameters may "
                    "be trainable. All buffers must have ``requires_grad=False``."
                )
            self.parameters = tuple(func.parameters())
        self.func = func
        self.args = args
        self.allow_unused = allow_unused
        self.num_args = len(leaves)
        self.inputs = (*leaves, *self.parameters)
        self.forward_graph, self.backward_graph = AccelGraph(), AccelGraph()
        self.outputs: tuple[torch.Tensor, ...] = ()
        self.grad_outputs: tuple[torch.Tensor | None, ...] = ()
        self.grad_inputs: tuple[torch.Tensor | None, ...] = ()

    def gradients(
        self, outputs: tuple[torch.Tensor, ...], grads: tuple[torch.Tensor | None, ...]
    ) -> tuple[torch.Tensor | None, ...]:
        """The gradient of each input, None for those that require none."""
        found = iter(
            torch.autograd.grad(
                outputs=tuple(o for o in outputs if o.requires_grad),
                inputs=tuple(i for i in self.inputs if i.requires_grad),
                grad_outputs=tuple(g for g in grads if g is not None),
                only_inputs=True,
                allow_unused=self.allow_unused,
            )
        )
        return tuple(next(found) if i.requires_grad else None for i in self.inputs)

    def run(self) -> None:
        outputs = tuple(torch.utils._pytree.tree_leaves(self.func(*self.args)))
        grads = tuple(torch.empty_like(o) if o.requires_grad else None for o in outputs)
        if any(o.requires_grad for o in outputs):
            self.gradients(outputs, grads)

    def capture_forward(self, pool: _PoolHandle) -> None:
        with graph(self.forward_graph, pool=pool):
            outputs = self.func(*self.args)
        leaves, self.spec = torch.utils._pytree.tree_flatten(outputs)
        self.outputs = tuple(leaves)

    def capture_backward(self, pool: _PoolHandle) -> None:
        self.grad_outputs = tuple(torch.empty_like(o) if o.requires_grad else None for o in self.outputs)
        self.grad_inputs = (None,) * len(self.inputs)
        if any(o.requires_grad for o in self.outputs):
            with graph(self.backward_graph, pool=pool):
                self.grad_inputs = self.gradients(self.outputs, self.grad_outputs)

    def graphed(self) -> Any:
        section = self

        class Graphed(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
                for mine, given in zip(section.inputs[: section.num_args], inputs):
                    if mine.data_ptr() != given.data_ptr():
                        mine.copy_(given)
                section.forward_graph.replay()
                return tuple(output.detach() for output in section.outputs)

            @staticmethod
            @torch.autograd.function.once_differentiable
            def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
                for mine, given in zip(section.grad_outputs, grads):
                    if mine is not None and mine.data_ptr() != given.data_ptr():
                        mine.copy_(given)
                section.backward_graph.replay()
                return tuple(None if grad is None else grad.detach() for grad in section.grad_inputs)

        def call(*args: Any) -> Any:
            leaves = torch.utils._pytree.arg_tree_leaves(*args)
            results = Graphed.apply(*leaves, *section.parameters)
            return torch.utils._pytree.tree_unflatten(results, section.spec)

        func = self.func
        if not isinstance(func, torch.nn.Module):
            return call
        eager, training = func.forward, func.training

        def forward(*args: Any, **kwargs: Any) -> Any:
            return call(*args, **kwargs) if func.training == training else eager(*args, **kwargs)

        func.forward = forward
        return func
