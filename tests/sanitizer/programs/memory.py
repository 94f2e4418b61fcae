"""Right programs in which memory is freed while a stream uses it: see faults.py."""

import torch

from tests.sanitizer.faults import Fault

N = 3 << 20  # floats: a block has a segment of its own, and serves the next request of that size


def used_on_a_side_stream():
    main, side = torch.accel.current_stream(), torch.accel.Stream()
    torch.accel.empty_cache()
    x = torch.ones(N, device="accel")
    side.wait_stream(main)
    with torch.accel.stream(side):
        total = x.sum()  # [use]
    x.record_stream(side)  # fault: record_stream
    del x
    y = torch.zeros(N, device="accel")  # [reuse]
    main.wait_stream(side)
    return total.item() == N and y.sum().item() == 0


def made_on_a_side_stream():
    main, side = torch.accel.current_stream(), torch.accel.Stream()
    torch.accel.empty_cache()
    with torch.accel.stream(side):
        x = torch.ones(N, device="accel")
    main.wait_stream(side)
    total = x.sum()  # [use]
    x.record_stream(main)  # fault: record_stream
    del x
    with torch.accel.stream(side):
        y = torch.zeros(N, device="accel")  # [reuse]
        empty = y.sum().item() == 0
    return total.item() == N and empty


def prefetch():
    # The next batch is uploaded on a stream of its own while this one is computed on.
    main, copies = torch.accel.current_stream(), torch.accel.Stream()
    torch.accel.empty_cache()
    batches = [torch.full((N,), float(step)).pin_memory() for step in range(4)]

    def upload(batch):
        with torch.accel.stream(copies):
            return batch.to("accel", non_blocking=True)  # [upload]

    following, totals = upload(batches[0]), []
    for step in range(4):
        main.wait_stream(copies)  # fault: wait
        batch = following
        batch.record_stream(main)  # fault: record_stream
        following = upload(batches[step + 1]) if step < 3 else None
        totals.append(batch.sum())  # [compute]
        del batch
    return [total.item() for total in totals] == [step * N for step in range(4)]


def offload():
    # An activation leaves the device after its forward and comes back for its backward.
    main, copies = torch.accel.current_stream(), torch.accel.Stream()
    torch.accel.empty_cache()
    activation = torch.ones(N, device="accel")  # [make]
    host = torch.empty(N, pin_memory=True)
    copies.wait_stream(main)  # fault: made
    with torch.accel.stream(copies):
        host.copy_(activation, non_blocking=True)  # [offload]
    activation.record_stream(copies)  # fault: record_stream
    del activation
    other = torch.full((N,), 2.0, device="accel")  # [reuse]
    with torch.accel.stream(copies):
        back = host.to("accel", non_blocking=True)  # [reload]
    main.wait_stream(copies)  # fault: reloaded
    total = back.sum() + other.sum()  # [use]
    return total.item() == 3 * N


FAULTS = [
    Fault(
        used_on_a_side_stream, "record_stream", first=("sum", "use"), second=("fill_", "reuse"), remedy="record_stream"
    ),
    Fault(
        made_on_a_side_stream, "record_stream", first=("sum", "use"), second=("fill_", "reuse"), remedy="record_stream"
    ),
    Fault(prefetch, "wait", first=("copy_", "upload"), second=("sum", "compute"), remedy="wait_stream"),
    Fault(prefetch, "record_stream", first=("sum", "compute"), second=("copy_", "upload"), remedy="record_stream"),
    Fault(offload, "made", first=("fill_", "make"), second=("copy_", "offload"), remedy="wait_stream"),
    Fault(offload, "record_stream", first=("copy_", "offload"), second=("fill_", "reuse"), remedy="record_stream"),
    Fault(offload, "reloaded", first=("copy_", "reload"), second=("sum", "use"), remedy="wait_stream"),
]
