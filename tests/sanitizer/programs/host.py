"""Right programs that hand memory between the host and a stream: see faults.py."""

import torch

from tests.sanitizer.faults import Fault

N = 1 << 12


def pinned(value=0.0):
    return torch.full((N,), float(value)).pin_memory()


def download():
    x = torch.ones(N, device="accel")
    host = pinned()
    host.copy_(x, non_blocking=True)  # [copy]
    torch.accel.current_stream().synchronize()  # fault: synchronize
    return host.sum().item() == N  # [read]


def download_with_event():
    copies = torch.accel.Stream()
    x = torch.ones(1, device="accel")  # [make]
    host = torch.zeros(1, pin_memory=True)
    copies.wait_stream(torch.accel.current_stream())  # fault: wait
    with torch.accel.stream(copies):
        host.copy_(x, non_blocking=True)  # [copy]
        done = copies.record_event()
    done.synchronize()  # fault: synchronize
    return host.item() == 1  # [read]


def to_cpu():
    host = torch.ones(N, device="accel").to("cpu", non_blocking=True)  # [copy]
    torch.accel.synchronize()  # fault: synchronize
    return host.tolist() == [1.0] * N  # [read]


def to_numpy():
    host = pinned()
    host.copy_(torch.ones(N, device="accel"), non_blocking=True)  # [copy]
    torch.accelerator.synchronize()  # fault: synchronize
    return float(host.numpy().sum()) == N  # [read]


def part_of_a_buffer():
    # Two results in one buffer; only the first has been waited for.
    first, second = torch.accel.Stream(), torch.accel.Stream()
    host = pinned()
    for stream, half in ((first, host[: N // 2]), (second, host[N // 2 :])):
        with torch.accel.stream(stream):
            half.copy_(torch.ones(N // 2, device="accel"), non_blocking=True)  # [copy]
    first.synchronize()
    done = host[: N // 2].sum().item()
    second.synchronize()  # fault: second
    return done + host[N // 2 :].sum().item() == N  # [read]


def upload():
    # One staging buffer, written again for each batch.
    staging = pinned()
    total = torch.zeros(N, device="accel")
    for step in range(3):
        staging.fill_(step)  # [overwrite]
        total += staging.to("accel", non_blocking=True)  # [upload]
        torch.accel.current_stream().synchronize()  # fault: synchronize
    return total.cpu().sum().item() == 3 * N


def double_buffering():
    copies, main = torch.accel.Stream(), torch.accel.current_stream()
    staging = [pinned() for _ in range(2)]
    with torch.accel.stream(copies):
        batches = [torch.empty(N, device="accel") for _ in range(2)]
    uploaded = [torch.accel.Event() for _ in range(2)]
    consumed = [torch.accel.Event() for _ in range(2)]
    total = torch.zeros(N, device="accel")
    for step in range(6):
        slot = step % 2
        uploaded[slot].synchronize()  # fault: staging
        staging[slot].fill_(step)  # [stage]
        copies.wait_event(consumed[slot])  # fault: consumed
        with torch.accel.stream(copies):
            batches[slot].copy_(staging[slot], non_blocking=True)  # [upload]
            uploaded[slot].record()
        main.wait_event(uploaded[slot])  # fault: uploaded
        total += batches[slot]  # [consume]
        consumed[slot].record()
    return total.cpu().sum().item() == 15 * N


FAULTS = [
    Fault(download, "synchronize", first=("copy_", "copy"), second=("sum", "read"), remedy="synchronize"),
    Fault(
        download_with_event,
        "synchronize",
        first=("copy_", "copy"),
        second=("_local_scalar_dense", "read"),
        remedy="synchronize",
    ),
    Fault(download_with_event, "wait", first=("fill_", "make"), second=("copy_", "copy"), remedy="wait_stream"),
    Fault(to_cpu, "synchronize", first=("copy_", "copy"), second=("tolist", "read"), remedy="synchronize"),
    Fault(to_numpy, "synchronize", first=("copy_", "copy"), second=("numpy", "read"), remedy="synchronize"),
    Fault(part_of_a_buffer, "second", first=("copy_", "copy"), second=("sum", "read"), remedy="synchronize"),
    Fault(upload, "synchronize", first=("copy_", "upload"), second=("fill_", "overwrite"), remedy="synchronize"),
    Fault(double_buffering, "staging", first=("copy_", "upload"), second=("fill_", "stage"), remedy="synchronize"),
    Fault(double_buffering, "consumed", first=("add", "consume"), second=("copy_", "upload"), remedy="wait_stream"),
    Fault(double_buffering, "uploaded", first=("copy_", "upload"), second=("add", "consume"), remedy="wait_stream"),
]
