"""Right programs on two devices: see faults.py."""

import torch

from tests.sanitizer.faults import Fault

N = 1 << 12


def peer_copy():
    # A copy between devices orders the current streams of both, and no other.
    there, here = torch.accel.Stream(device=0), torch.accel.current_stream(0)
    x = torch.full((N,), 2.0, device="accel:0")  # [make]
    there.wait_stream(here)  # fault: source
    with torch.accel.stream(there):
        y = x.to("accel:1")  # [copy]
    x.record_stream(there)
    used = torch.accel.Stream(device=1)
    used.wait_stream(torch.accel.current_stream(1))  # fault: destination
    with torch.accel.stream(used):
        return (y * 2).cpu().sum().item() == 4 * N  # [use]


def event_between_devices():
    a, b, c = torch.accel.Stream(device=0), torch.accel.Stream(device=1), torch.accel.Stream(device=0)
    with torch.accel.stream(b):
        y = torch.zeros(N, device="accel:1")
    with torch.accel.stream(a):
        x = torch.ones(N, device="accel:0")
        with torch.accel.stream(b):
            y.copy_(x)  # [copy]
    c.wait_event(b.record_event())  # fault: event
    with torch.accel.stream(c):
        x.zero_()  # [overwrite]
    with torch.accel.stream(b):
        return y.cpu().sum().item() == N


FAULTS = [
    Fault(peer_copy, "source", first=("fill_", "make"), second=("copy_", "copy"), remedy="wait_stream", devices=2),
    Fault(peer_copy, "destination", first=("copy_", "copy"), second=("mul", "use"), remedy="wait_stream", devices=2),
    Fault(
        event_between_devices,
        "event",
        first=("copy_", "copy"),
        second=("fill_", "overwrite"),
        remedy="wait_stream",
        devices=2,
    ),
]
