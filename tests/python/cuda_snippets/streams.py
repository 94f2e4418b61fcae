"""Streams, events and pinned memory."""

from concurrent.futures import ThreadPoolExecutor

import torch


def values():
    return torch.arange(4096.0).view(64, 64) / 4096


def overlap():
    """Two products on streams of their own, joined before their sum."""
    a = values().cuda()
    first, second = torch.cuda.Stream(), torch.cuda.Stream(device="cuda", priority=-1)
    for stream in (first, second):
        stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(first):
        b = a @ a
    with torch.cuda.stream(second):
        c = a + a
    for stream, result in ((first, b), (second, c)):
        torch.cuda.current_stream().wait_stream(stream)
        result.record_stream(torch.cuda.current_stream())
    assert torch.cuda.current_stream() == torch.cuda.default_stream() and first != second
    return b + c


def overlap_on_cpu():
    a = values()
    return a @ a + (a + a)


def timing():
    a = values().cuda()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(3):
        a = a @ a
    end.record()
    torch.cuda.synchronize()
    assert start.query() and start.elapsed_time(end) > 0
    return a


def timing_on_cpu():
    a = values()
    for _ in range(3):
        a = a @ a
    return a


class Prefetcher:
    """Copies the next batch on a stream of its own while the caller works on the last one."""

    def __init__(self, loader):
        self.loader = iter(loader)
        self.stream = torch.cuda.Stream()
        self.preload()

    def preload(self):
        self.batch = next(self.loader, None)
        if self.batch is not None:
            with torch.cuda.stream(self.stream):
                self.batch = self.batch.cuda(non_blocking=True).mul_(2)

    def __iter__(self):
        while self.batch is not None:
            torch.cuda.current_stream().wait_stream(self.stream)
            batch = self.batch
            batch.record_stream(torch.cuda.current_stream())
            self.preload()
            yield batch


def prefetched():
    loader = torch.utils.data.DataLoader(values(), batch_size=16, pin_memory=True)
    return [batch.sum(1) for batch in Prefetcher(loader)]


def prefetched_on_cpu():
    return [batch.mul(2).sum(1) for batch in values().split(16)]


def read_back():
    """Results return through pinned memory, and an event says when they are there."""
    a = values().cuda()
    host = torch.empty(a.shape, pin_memory=True)
    done = torch.cuda.Event()
    host.copy_(a * 3, non_blocking=True)
    done.record()
    done.synchronize()
    assert host.is_pinned() and not host.is_cuda
    return host.clone()


def read_back_on_cpu():
    return values() * 3


def thread_pool():
    """A server: each thread has a stream, the model is shared."""
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 4).cuda().eval()
    torch.cuda.synchronize()

    def serve(request):
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            answer = model(request.to("cuda"))
            assert answer.is_cuda and answer.device.type == "cuda" and torch.cuda.is_available()
            return answer.cpu()

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(serve, values().split(8)))


def thread_pool_on_cpu():
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 4)
    return [model(request).detach() for request in values().split(8)]


def workers():
    """Batches made by other processes, pinned by a thread."""
    dataset = torch.utils.data.TensorDataset(values(), torch.arange(64))
    loader = torch.utils.data.DataLoader(dataset, batch_size=16, num_workers=2, pin_memory=True)
    device = torch.device("cuda", torch.cuda.current_device())
    results = []
    for rows, numbers in loader:
        assert rows.is_pinned()
        rows, numbers = rows.to(device, non_blocking=True), numbers.to(device, non_blocking=True)
        results.append(rows.sum(1) * numbers)
    return results


def workers_on_cpu():
    return [rows.sum(1) * numbers for rows, numbers in zip(values().split(16), torch.arange(64).split(16))]
