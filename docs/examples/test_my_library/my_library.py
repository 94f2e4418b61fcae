"""A small library of functions for any device. Every test of it passes on the CPU, and five lines are wrong.

On a GPU the first fails at once; the others give wrong numbers now and then, or cost time. The lines are marked `fault`;
my_library_fixed.py has their repairs.
"""

import contextlib

import torch


def with_positions(x):
    """Adds its column number to each element of a matrix."""
    return x + torch.arange(x.shape[1])  # fault 1: made on the CPU, whatever the device of x


def on_host(x):
    """The values of a tensor as a list, copied through pinned memory."""
    host = torch.empty(x.shape, dtype=x.dtype, pin_memory=torch.accelerator.is_available())
    host.copy_(x, non_blocking=True)
    return host.tolist()  # fault 2: the copy may not have been made yet


class Background:
    """Computes beside the caller: ``start`` queues work on a stream of its own, ``finish`` gives the result."""

    def __init__(self, device):
        self.stream = None if device.type == "cpu" else torch.Stream(device)

    def _beside(self):
        return contextlib.nullcontext() if self.stream is None else self.stream

    def start(self, x):
        """Begins to compute the norm of the deviations from the mean."""
        deviations = x - x.mean()
        if self.stream is not None:
            self.stream.wait_stream(torch.accelerator.current_stream())
        with self._beside():
            self.result = deviations.norm()  # fault 4: nobody has told the allocator that this stream reads deviations

    def start_product(self, x):
        """Begins to compute the sum of the squares."""
        with self._beside():
            self.result = (x * x).sum()  # fault 3: this stream does not wait for the one that makes x

    def finish(self):
        """The result, on the caller's stream."""
        if self.stream is not None:
            torch.accelerator.current_stream().wait_stream(self.stream)
            self.result.record_stream(torch.accelerator.current_stream())
        return self.result


def scaled(batches):
    """Divides each batch by its largest element."""
    results = []
    for batch in batches:
        largest = batch.abs().max().item()  # fault 5: the host waits for the device in every turn
        results.append(batch / largest)
    return results
