"""Right programs whose work is ordered by streams and events: see faults.py."""

import threading
import time

import torch

from tests.sanitizer.faults import Fault

N = 1 << 12


def full(value):
    return torch.full((N,), float(value), device="accel")


def producer_consumer():
    main, side = torch.accel.current_stream(), torch.accel.Stream()
    x = full(1)  # [make]
    side.wait_stream(main)  # fault: before
    with torch.accel.stream(side):
        y = x * 2  # [produce]
    main.wait_stream(side)  # fault: after
    z = y + 1  # [consume]
    return z.cpu().sum().item() == 3 * N


def event():
    a, b = torch.accel.Stream(), torch.accel.Stream()
    done = torch.accel.Event()
    with torch.accel.stream(a):
        x = full(2)  # [write]
        done.record()  # fault: record
    b.wait_event(done)  # fault: wait
    with torch.accel.stream(b):
        return (x * 3).cpu().sum().item() == 6 * N  # [read]


def event_recorded_again():
    a, b = torch.accel.Stream(), torch.accel.Stream()
    done = torch.accel.Event()
    with torch.accel.stream(a):
        x = full(1)
        done.record()
        x.add_(1)  # [write]
        done.record()  # fault: again
    b.wait_event(done)
    with torch.accel.stream(b):
        return (x * 3).cpu().sum().item() == 6 * N  # [read]


def fork_join():
    main = torch.accel.current_stream()
    streams = [torch.accel.Stream() for _ in range(4)]
    x = full(1)  # [make]
    parts = []
    for number, stream in enumerate(streams):
        stream.wait_stream(main)  # fault: fork
        with torch.accel.stream(stream):
            parts.append(x * number)  # [part]
    for stream in streams:
        main.wait_stream(stream)  # fault: join
    total = torch.stack(parts).sum(0)  # [total]
    return total.cpu().sum().item() == 6 * N


def transitive():
    a, b, c = (torch.accel.Stream() for _ in range(3))
    with torch.accel.stream(a):
        x = full(1)  # [write]
    b.wait_stream(a)  # fault: first_hop
    with torch.accel.stream(b):
        y = full(2)  # [other]
    c.wait_stream(b)  # fault: second_hop
    with torch.accel.stream(c):
        z = x + 1  # [read]
        return (z + y).cpu().sum().item() == 4 * N


def in_place():
    main, side = torch.accel.current_stream(), torch.accel.Stream()
    x = full(1)
    side.wait_stream(main)
    with torch.accel.stream(side):
        y = x * 2  # [read]
    main.wait_stream(side)  # fault: wait
    x.add_(1)  # [overwrite]
    return (x + y).cpu().sum().item() == 4 * N


def out():
    main, side = torch.accel.current_stream(), torch.accel.Stream()
    x, z = full(1), full(0)  # [make]
    side.wait_stream(main)  # fault: before
    with torch.accel.stream(side):
        torch.add(x, x, out=z)  # [write]
    main.wait_stream(side)  # fault: after
    z.mul_(3)  # [update]
    return z.cpu().sum().item() == 6 * N


def halves():
    main, side = torch.accel.current_stream(), torch.accel.Stream()
    x = full(1)
    left, right = x[: N // 2], x[N // 2 :]
    side.wait_stream(main)
    with torch.accel.stream(side):
        right.add_(1)  # [write]
    left.add_(1)  # the other half: nothing to wait for
    main.wait_stream(side)  # fault: join
    return x.cpu().sum().item() == 2 * N  # [read]


def columns():
    main, side = torch.accel.current_stream(), torch.accel.Stream()
    x = torch.ones(64, 8, device="accel")
    side.wait_stream(main)
    with torch.accel.stream(side):
        x[:, 4:].mul_(2)  # [write]
    x[:, :4].mul_(3)  # between the bytes of the others: nothing to wait for
    main.wait_stream(side)  # fault: join
    x[:, 3:5].add_(1)  # [straddle]
    return x.cpu().sum().item() == 64 * (12 + 8 + 2)


def cache():
    # A cache of keys: one stream appends, another reads what is there.
    append, attend = torch.accel.Stream(), torch.accel.Stream()
    append.wait_stream(torch.accel.current_stream())
    with torch.accel.stream(append):
        keys = torch.zeros(8, 64, device="accel")
    total = 0.0
    for step in range(8):
        with torch.accel.stream(append):
            keys[step].fill_(step)  # [append]
            there = append.record_event()
        attend.wait_event(there)  # fault: wait
        with torch.accel.stream(attend):
            total += keys[: step + 1].sum().item()  # [attend]
    return total == 64 * sum(sum(range(step + 1)) for step in range(8))


def host_wait():
    a, b = torch.accel.Stream(), torch.accel.Stream()
    with torch.accel.stream(a):
        x = full(1)  # [write]
    a.synchronize()  # fault: synchronize
    with torch.accel.stream(b):
        return (x * 3).cpu().sum().item() == 3 * N  # [read]


def polling():
    a, b = torch.accel.Stream(), torch.accel.Stream()
    with torch.accel.stream(a):
        x = full(1)  # [write]
        done = a.record_event()
    while not done.query():  # fault: poll
        time.sleep(0)
    with torch.accel.stream(b):
        return (x * 3).cpu().sum().item() == 3 * N  # [read]


def threads():
    main, made = torch.accel.current_stream(), {}

    def work():
        with torch.accel.stream(torch.accel.Stream()):
            made["x"] = full(1)  # [write]
            made["done"] = torch.accel.current_stream().record_event()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    main.wait_event(made["done"])  # fault: wait
    return (made["x"] * 3).cpu().sum().item() == 3 * N  # [read]


def foreach():
    main, side = torch.accel.current_stream(), torch.accel.Stream()
    weights = [full(1) for _ in range(5)]  # [make]
    updates = [full(2) for _ in range(5)]
    side.wait_stream(main)  # fault: before
    with torch.accel.stream(side):
        torch._foreach_add_(weights, updates)  # [update]
    main.wait_stream(side)  # fault: after
    return sum(weight.cpu().sum().item() for weight in weights) == 15 * N  # [read]


def sparse():
    main, side = torch.accel.current_stream(), torch.accel.Stream()
    rows = torch.eye(16, device="accel").to_sparse()
    dense = torch.ones(16, 4, device="accel")
    rows.values().mul_(2)  # [scale]
    side.wait_stream(main)  # fault: wait
    with torch.accel.stream(side):
        return torch.sparse.mm(rows, dense).cpu().sum().item() == 128  # [multiply]


def ring():
    # Three buffers in turn; a buffer is filled again once it has been drained.
    fill, drain = torch.accel.Stream(), torch.accel.Stream()
    with torch.accel.stream(fill):
        buffers = [full(0) for _ in range(3)]
    with torch.accel.stream(drain):
        total = full(0)
    filled = [torch.accel.Event() for _ in range(3)]
    drained = [torch.accel.Event() for _ in range(3)]
    for step in range(9):
        slot = step % 3
        fill.wait_event(drained[slot])  # fault: drained
        with torch.accel.stream(fill):
            buffers[slot].fill_(step)  # [fill]
            filled[slot].record()  # fault: record_filled
        drain.wait_event(filled[slot])  # fault: filled
        with torch.accel.stream(drain):
            total += buffers[slot]  # [drain]
            drained[slot].record()  # fault: record_drained
    with torch.accel.stream(drain):
        return total.cpu().sum().item() == N * sum(range(9))


FAULTS = [
    Fault(producer_consumer, "before", first=("fill_", "make"), second=("mul", "produce"), remedy="wait_stream"),
    Fault(producer_consumer, "after", first=("mul", "produce"), second=("add", "consume"), remedy="wait_stream"),
    Fault(event, "record", first=("fill_", "write"), second=("mul", "read"), remedy="wait_stream"),
    Fault(event, "wait", first=("fill_", "write"), second=("mul", "read"), remedy="wait_stream"),
    Fault(event_recorded_again, "again", first=("add", "write"), second=("mul", "read"), remedy="wait_stream"),
    Fault(fork_join, "fork", first=("fill_", "make"), second=("mul", "part"), remedy="wait_stream"),
    Fault(fork_join, "join", first=("mul", "part"), second=("cat", "total"), remedy="wait_stream"),
    Fault(transitive, "first_hop", first=("fill_", "write"), second=("add", "read"), remedy="wait_stream"),
    Fault(transitive, "second_hop", first=("fill_", "write"), second=("add", "read"), remedy="wait_stream"),
    Fault(in_place, "wait", first=("mul", "read"), second=("add", "overwrite"), remedy="wait_stream"),
    Fault(out, "before", first=("fill_", "make"), second=("add", "write"), remedy="wait_stream"),
    Fault(out, "after", first=("add", "write"), second=("mul", "update"), remedy="wait_stream"),
    Fault(halves, "join", first=("add", "write"), second=("copy_", "read"), remedy="wait_stream"),
    Fault(columns, "join", first=("mul", "write"), second=("add", "straddle"), remedy="wait_stream"),
    Fault(cache, "wait", first=("fill_", "append"), second=("sum", "attend"), remedy="wait_stream"),
    Fault(host_wait, "synchronize", first=("fill_", "write"), second=("mul", "read"), remedy="wait_stream"),
    Fault(polling, "poll", first=("fill_", "write"), second=("mul", "read"), remedy="wait_stream"),
    Fault(threads, "wait", first=("fill_", "write"), second=("mul", "read"), remedy="wait_stream"),
    Fault(foreach, "before", first=("fill_", "make"), second=("_foreach_add_", "update"), remedy="wait_stream"),
    Fault(foreach, "after", first=("_foreach_add_", "update"), second=("copy_", "read"), remedy="wait_stream"),
    Fault(sparse, "wait", first=("mul", "scale"), second=("addmm", "multiply"), remedy="wait_stream"),
    Fault(ring, "drained", first=("add", "drain"), second=("fill_", "fill"), remedy="wait_stream"),
    Fault(ring, "record_filled", first=("fill_", "fill"), second=("add", "drain"), remedy="wait_stream"),
    Fault(ring, "filled", first=("fill_", "fill"), second=("add", "drain"), remedy="wait_stream"),
    Fault(ring, "record_drained", first=("add", "drain"), second=("fill_", "fill"), remedy="wait_stream"),
]
