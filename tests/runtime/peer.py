"""Another process, made by spawn, that does what a test tells it: ``Peer().call(function, *arguments)``.

The functions here run in it; what they keep lives in ``kept``. Results come back as CPU tensors or plain values, but for
``give``.
"""

import contextlib
import os
import signal
from collections.abc import Callable
from typing import Any

import torch
import torch.multiprocessing as mp

kept: dict[str, Any] = {}
holds: dict[str, contextlib.ExitStack] = {}


def serve(connection: Any) -> None:
    from torch_accel import testing

    torch.accel.init()  # reads ACCEL_LAUNCH_BLOCKING
    with testing.launch_blocking(False):  # a test that asks for queued work asks for it here too
        _serve(connection)


def _serve(connection: Any) -> None:
    while True:
        try:
            function, arguments = connection.recv()
        except EOFError:
            return
        except Exception as error:  # of unpickling, which the sender is to see
            connection.send((False, f"{type(error).__name__}: {error}"))
            continue
        try:
            connection.send((True, function(*arguments)))
        except Exception as error:
            connection.send((False, f"{type(error).__name__}: {error}"))


class Peer:
    def __init__(self) -> None:
        context = mp.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What ``function(*arguments)`` returns there; RuntimeError with the name and text of what it raises."""
        self.connection.send((function, arguments))
        done, value = self.connection.recv()
        if not done:
            raise RuntimeError(value)
        return value

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.process.close()
        self.connection.close()

    def end(self) -> None:
        self.connection.close()
        self.process.join()
        self.process.close()


def keep(name: str, value: Any) -> None:
    kept[name] = value


def drop(*names: str) -> None:
    for name in names:
        del kept[name]


def fetch(name: str) -> Any:
    return kept[name].cpu()


def give(name: str) -> Any:
    return kept[name]


def fill(name: str, number: float) -> None:
    kept[name].fill_(number)
    torch.accel.synchronize()


def described(tensor: torch.Tensor) -> tuple[Any, ...]:
    return (
        type(tensor),
        tensor.dtype,
        tensor.shape,
        tensor.stride(),
        tensor.storage_offset(),
        str(tensor.device),
        tensor.requires_grad,
        tensor.untyped_storage().nbytes(),
    )


def received(tensor: torch.Tensor) -> tuple[tuple[Any, ...], torch.Tensor]:
    return described(tensor), tensor.detach().cpu()


def same_storage(first: str, second: str) -> bool:
    return kept[first].untyped_storage()._cdata == kept[second].untyped_storage()._cdata


def add_one(source: str, target: str) -> bool:
    """Queues ``target = source + 1``; whether that stream has nothing left to do."""
    kept[target] = kept[source] + 1
    return torch.accel.current_stream().query()


def hold(name: str) -> None:
    from torch_accel.testing import hold_stream

    holds[name] = contextlib.ExitStack()
    holds[name].enter_context(hold_stream())


def release(name: str) -> None:
    holds.pop(name).close()


def fork_and_stay() -> int:
    """Forks a child that stays, with copies of every descriptor, and returns its number."""
    child = os.fork()
    if child == 0:
        signal.alarm(100)  # should nobody end it
        signal.pause()
        os._exit(0)
    return child


def drop_all() -> None:
    kept.clear()
    torch.accel.synchronize()


def run(name: str, x: torch.Tensor) -> torch.Tensor:
    return kept[name](x.to("accel")).detach().cpu()


def zero_parameters(name: str) -> None:
    for parameter in kept[name].parameters():
        torch.nn.init.zeros_(parameter)
    torch.accel.synchronize()


def storage(value: Any) -> tuple[Any, ...]:
    return type(value), str(value.device), value.nbytes(), value.tolist()


def same_storage_in(name: str) -> bool:
    first, second = kept[name]
    return first.untyped_storage()._cdata == second.untyped_storage()._cdata


def give_copy(name: str) -> torch.Tensor:
    kept["copy"] = kept[name].clone()
    return kept["copy"]


def resize(name: str, size: int) -> None:
    kept[name].resize_(size)


def ones(size: int) -> torch.Tensor:
    kept["ones"] = torch.ones(size, device="accel")
    return kept["ones"]


def ones_held(size: int) -> torch.Tensor:
    """Ones that are still to be written."""
    value = kept["held"] = torch.empty(size, device="accel")
    hold("ones")
    return value.fill_(1)


def try_in_child(x: torch.Tensor, queue: Any, texts: Any) -> None:
    for use in (lambda: queue.put(x), lambda: queue.get()):
        try:
            use()
        except RuntimeError as error:
            texts.put(str(error))
        else:
            texts.put("no error")


def send(connection: Any, wait: bool) -> None:
    connection.send(torch.ones(3, device="accel"))
    if wait:
        connection.recv()


def dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.cpu().to_dense()


def query(name: str) -> bool:
    return kept[name].query()


def query_stream() -> bool:
    return torch.accel.current_stream().query()


def wait(name: str) -> None:
    kept[name].wait()


def record(name: str) -> None:
    kept[name].record()
