"""Reads what callgrind wrote: where the instructions were spent."""

import re
from collections import Counter
from pathlib import Path

#: the function's object, the function, where its instructions count to; the first that fits
PLACES = (
    ("_C.", r"accelLaunch(Begin|Commit)|begin_launch|commit_launch|Ring::|attach_worker", "accel: the stream's ring"),
    (
        "_C.",
        r"accelBlockSet|accelPointerGetAttributes|BlockTable|AddressMap|driver::locate",
        "accel: the table of blocks",
    ),
    (
        "_C.",
        r"Heap::|accel::(allocate|free_block|count|this_record|note_memory|last_ticket)\(|CachingAllocator"
        r"|accelStream(OfThisThread|GetTickets)|accelTraceNote|report_to_profiler|accel::BySize",
        "accel: the caching allocator",
    ),
    ("_C.", r"detail::enqueue|detail::launch\(|HostState", "accel: the record"),
    ("_C.", "", "accel: checks, the output, the rest"),
    ("libpython", "", "the interpreter"),
    ("libtorch_python", "", "torch's binding: arguments in, result out"),
    ("libtorch|libc10", "", "torch: dispatcher, autograd, tensor objects; the CPU's also its kernel"),
    ("", "", "the C library: memory, locks, thread-local storage"),
)


def spent(path: Path) -> Counter[tuple[str, str]]:
    """(object, function) -> instructions of its own, from a file that callgrind wrote."""
    names: dict[tuple[str, str], str] = {}
    current = {"ob": "", "fn": ""}
    costs: Counter[tuple[str, str]] = Counter()
    skip = False  # the line after calls= is the callee's
    for line in path.read_text().splitlines():
        if found := re.fullmatch(r"(c?)(ob|fn)=(?:\((\d+)\))?\s*(.*)", line):
            called, kind, number, name = found.groups()
            if number and name:
                names[kind, number] = name
            if not called:
                current[kind] = names[kind, number] if number else name
                if kind == "ob":
                    current["fn"] = ""
        elif line.startswith("calls="):
            skip = True
        elif re.match(r"[+\-*\d]", line):
            if not skip:
                costs[current["ob"], current["fn"]] += int(line.split()[1])
            skip = False
    return costs


def total(path: Path) -> int:
    """All instructions of a file."""
    return int(re.search(r"^(?:summary|totals): (\d+)", path.read_text(), re.M)[1])


def by_place(costs: Counter[tuple[str, str]]) -> dict[str, int]:
    """PLACES -> instructions, in that order; every instruction counts once."""
    places = dict.fromkeys((name for _, _, name in PLACES), 0)
    for (obj, function), cost in costs.items():
        file = obj.rsplit("/", 1)[-1]
        name = next(n for o, f, n in PLACES if re.match(o, file) and re.search(f, function))
        places[name] += cost
    return places
