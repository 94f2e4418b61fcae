"""Tensors in torch.multiprocessing: another process maps the same memory, and whoever holds it last frees it."""

import gc

import pytest
import torch
from expecttest import assert_expected_inline

from tests.memory import settled
from tests.runtime import peer
from tests.runtime.peer import Peer
from torch_accel.testing import hold_stream
from torch_accel.testing.held import bits


@pytest.fixture(scope="module")
def other():
    made = Peer()
    yield made
    made.end()


@pytest.fixture(autouse=True)
def nothing_stays(request):
    """Every test leaves the other process with nothing, and this one's memory as it was."""
    torch.accel.init()
    torch.accel.ipc_collect()
    before = settled()
    yield
    gc.collect()  # exceptions that a test looked at hold its tensors
    if "other" in request.fixturenames:
        request.getfixturevalue("other").call(peer.drop_all)
    torch.accel.synchronize()
    torch.accel.ipc_collect()
    assert torch.accel._C._ipc_counts() == (0, 0)
    assert torch.accel.memory_allocated() == before


def test_both_processes_write_the_same_memory(other):
    x = torch.arange(6.0, device="accel")
    other.call(peer.keep, "x", x)
    other.call(peer.fill, "x", 7)
    assert x.tolist() == [7] * 6
    x.fill_(8)
    torch.accel.synchronize()
    assert torch.equal(other.call(peer.fetch, "x"), torch.full((6,), 8.0))


def layouts():
    base = torch.arange(48, dtype=torch.float32).reshape(2, 4, 6)
    yield "contiguous", base
    yield "offset", base[1:, 2:, 3:]
    yield "step", base[:, ::2, 1::3]
    yield "transposed", base.transpose(0, 2)
    yield "expanded", base[:, :1, :1].expand(2, 3, 5)
    yield "scalar", base[1, 2, 3]
    yield "empty view", base[:, :0]
    yield "no storage", torch.empty(0, 3)
    for dtype in (torch.bool, torch.uint8, torch.bfloat16, torch.float8_e4m3fn, torch.complex64, torch.int64):
        yield str(dtype), base.to(dtype)


@pytest.mark.parametrize("x", [pytest.param(x, id=name) for name, x in layouts()])
def test_what_arrives_is_what_was_sent(other, x):
    y = torch.empty(0, dtype=x.dtype, device="accel").set_(
        x.untyped_storage().to(device="accel"), x.storage_offset(), x.size(), x.stride()
    )
    description, values = other.call(peer.received, y)
    assert description == peer.described(y)
    assert torch.equal(bits(values), bits(x))


def test_parameters_and_gradients(other):
    p = torch.nn.Parameter(torch.ones(3, device="accel"))
    frozen = torch.nn.Parameter(torch.arange(3, device="accel"), requires_grad=False)
    leaf = torch.ones(2, device="accel", requires_grad=True)
    for x in (p, frozen, leaf, p.detach()):
        assert other.call(peer.received, x)[0] == peer.described(x)
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor which requires_grad"):
        other.call(peer.keep, "x", p * 2)


def test_conjugate_and_negative_bits(other):
    z = torch.tensor([1 + 2j, 3 - 1j], device="accel")
    for x in (z.conj(), z.conj().imag, z.conj().requires_grad_()):
        description, values = other.call(peer.received, x)
        assert description == peer.described(x) and torch.equal(values, x.detach().cpu())


def test_a_module_and_its_state(other):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).to("accel").eval()
    x = torch.randn(2, 3)
    other.call(peer.keep, "model", model)
    y = other.call(peer.run, "model", x)
    assert torch.equal(y, model(x.to("accel")).detach().cpu())
    other.call(peer.zero_parameters, "model")
    assert all(not p.any() for p in model.parameters())


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_nested_tensors(other, layout):
    x = torch.nested.nested_tensor([torch.ones(2, 3), torch.full((1, 3), 2.0)], layout=layout, device="accel")
    other.call(peer.keep, "x", x)
    arrived = other.call(peer.fetch, "x")
    assert arrived.layout == layout
    assert [part.tolist() for part in arrived.unbind()] == [[[1] * 3] * 2, [[2] * 3]]
    x.mul_(3)
    torch.accel.synchronize()
    # torch rebuilds a strided one from a copy of the buffer that it shared.
    scale = 3 if layout == torch.jagged else 1
    assert other.call(peer.fetch, "x").unbind()[1].tolist() == [[2 * scale] * 3]


def test_a_pool_of_processes():
    xs = [torch.full((3,), float(number), device="accel") for number in range(4)]
    with torch.multiprocessing.get_context("spawn").Pool(2) as pool:
        negated = pool.map(torch.neg, xs)
        # Before the end of the pool, which kills the processes: what they queued may still run.
        assert [x.tolist() for x in negated] == [[-number] * 3 for number in range(4)]
    assert {x.device.type for x in negated} == {"accel"}


def test_storages(other):
    x = torch.arange(5.0, device="accel")
    for storage in (x.untyped_storage(), x.storage(), torch.UntypedStorage(0, device="accel:0")):
        kind, device, size, data = other.call(peer.storage, storage)
        assert (kind, device, size) == (type(storage), str(storage.device), storage.nbytes())
        assert data == storage.tolist()


def test_sparse_tensors(other):
    dense = torch.tensor([[0, 1.0, 0], [2, 0, 3]])
    for x in (dense.to_sparse_coo(), dense.to_sparse_csr(), dense.to_sparse_csc()):
        assert torch.equal(other.call(peer.dense, x.to("accel")), dense)


def test_what_shares_a_storage_here_shares_it_there(other):
    x = torch.zeros(10, device="accel")
    other.call(peer.keep, "x", x)
    other.call(peer.keep, "part", x[3:7])
    assert other.call(peer.same_storage, "x", "part")
    other.call(peer.keep, "pair", [x, x.view(2, 5)])
    assert other.call(peer.same_storage_in, "pair")
    other.call(peer.keep, "y", torch.zeros(10, device="accel"))
    assert not other.call(peer.same_storage, "x", "y")


def test_a_process_that_sends_to_itself_gets_its_own_storage():
    queue = torch.multiprocessing.get_context("spawn").SimpleQueue()
    x = torch.arange(4.0, device="accel")
    queue.put(x[1:])
    y = queue.get()
    assert y.untyped_storage()._cdata == x.untyped_storage()._cdata and y.tolist() == [1, 2, 3]


def test_a_queue_with_a_thread_of_its_own():
    queue = torch.multiprocessing.get_context("spawn").Queue()
    side = torch.accel.Stream()
    with hold_stream(side), torch.accel.stream(side):
        x = torch.zeros(4, device="accel") + 1  # queued on a stream that the queue's thread does not know
        queue.put({"x": x})
        y = queue.get(timeout=60)["x"]
        assert y.untyped_storage()._cdata == x.untyped_storage()._cdata
    queue.close()
    queue.join_thread()
    torch.accel.synchronize()


def test_what_was_received_cannot_be_sent_on(other):
    x = torch.zeros(3, device="accel")
    other.call(peer.keep, "x", x)
    with pytest.raises(RuntimeError) as raised:
        other.call(peer.give, "x")
    assert_expected_inline(
        str(raised.value),
        """RuntimeError: Attempted to send accel tensor received from another process; this is not currently supported. Consider cloning before sending.""",
    )
    y = other.call(peer.give_copy, "x")
    other.call(peer.fill, "x", 1)
    assert y.tolist() == [0] * 3 and y.device == x.device


def test_a_shared_storage_keeps_its_size(other):
    x = torch.zeros(4, device="accel")
    other.call(peer.keep, "x", x)
    for use in (lambda: x.resize_(1000), lambda: x.untyped_storage().resize_(0)):
        with pytest.raises(RuntimeError, match="Trying to resize storage that is not resizable"):
            use()
    with pytest.raises(RuntimeError, match="Trying to resize storage that is not resizable"):
        other.call(peer.resize, "x", 1000)
    other.call(peer.drop, "x")
    torch.accel.ipc_collect()
    assert x.resize_(1000).shape == (1000,)


# ---- Order ----


def test_the_receiver_waits_for_the_sender_s_queued_work(other, queued):
    x = torch.zeros(1000, device="accel")
    torch.accel.synchronize()
    with hold_stream():
        x.fill_(5)
        other.call(peer.keep, "x", x)
        assert not other.call(peer.add_one, "x", "y")
    assert torch.equal(other.call(peer.fetch, "y"), torch.full((1000,), 6.0))


def test_a_storage_that_is_there_already_waits_too(other, queued):
    x = torch.zeros(1000, device="accel")
    other.call(peer.keep, "x", x)
    with hold_stream():
        x.fill_(5)
        other.call(peer.keep, "again", x)
        assert not other.call(peer.add_one, "again", "y")
    assert torch.equal(other.call(peer.fetch, "y"), torch.full((1000,), 6.0))


def test_memory_is_freed_with_its_last_holder(other, queued):
    before = settled()
    x = torch.ones(1 << 18, device="accel")
    other.call(peer.keep, "x", x)
    del x
    torch.accel.ipc_collect()
    assert torch.accel.memory_allocated() == before + (1 << 20)  # held there
    other.call(peer.hold, "h")
    other.call(peer.add_one, "x", "y")
    other.call(peer.drop, "x")
    torch.accel.ipc_collect()
    assert torch.accel.memory_allocated() == before + (1 << 20)  # queued work there reads it
    other.call(peer.release, "h")
    assert torch.equal(other.call(peer.fetch, "y"), torch.full((1 << 18,), 2.0))
    torch.accel.ipc_collect()
    assert torch.accel.memory_allocated() == before


def test_the_next_message_collects(other):
    x = torch.ones(1 << 18, device="accel")
    other.call(peer.keep, "x", x)
    del x
    held = torch.accel.memory_allocated()
    other.call(peer.drop_all)  # and waits: the import itself may be queued there
    other.call(peer.keep, "y", torch.ones(1, device="accel"))
    assert torch.accel.memory_allocated() <= held - (1 << 20) + 512


# ---- Events ----


def test_a_stream_waits_for_another_process(other, queued):
    x = torch.zeros(1000, device="accel")
    event = torch.accel.Event(interprocess=True)
    other.call(peer.keep, "x", x)
    other.call(peer.keep, "event", event)
    assert event.query() and other.call(peer.query, "event")  # never recorded
    with hold_stream():
        x.fill_(4)
        event.record()
        assert not event.query() and not other.call(peer.query, "event")
        other.call(peer.wait, "event")
        assert not other.call(peer.add_one, "x", "y")
        assert not other.call(peer.query_stream)
    assert torch.equal(other.call(peer.fetch, "y"), torch.full((1000,), 5.0))
    assert other.call(peer.query, "event") and event.query()


def test_the_other_process_records(other, queued):
    event = torch.accel.Event(interprocess=True)
    other.call(peer.keep, "event", event)
    event.record()
    event.synchronize()
    other.call(peer.hold, "h")
    other.call(peer.record, "event")
    assert not event.query()
    side = torch.accel.Stream()
    side.wait_event(event)
    with torch.accel.stream(side):
        y = torch.zeros(3, device="accel")
    assert not side.query()
    other.call(peer.release, "h")
    event.synchronize()
    assert event.query()
    side.synchronize()
    assert y.tolist() == [0, 0, 0]
    event.record()  # the newest recording is this process's again
    event.synchronize()
    assert other.call(peer.query, "event")


def test_handles_of_events(other):
    event = torch.accel.Event(interprocess=True)
    handle = event.ipc_handle()
    assert isinstance(handle, bytes) and len(handle) == 64
    again = torch.accel.Event.from_ipc_handle(torch.device("accel:0"), handle)
    again.record()
    again.synchronize()
    assert event.query() and again.ipc_handle()[:16] == handle[:16]
    for use, kind, text in (
        (lambda: torch.accel.Event().ipc_handle(), RuntimeError, "was not made for several processes"),
        (lambda: torch.accel.Event.from_ipc_handle("accel", b"short"), ValueError, "a handle has 64 bytes, not 5"),
        (lambda: torch.accel.Event.from_ipc_handle("accel", bytes(64)), RuntimeError, "are no handle"),
        (lambda: torch.accel.Event(enable_timing=True, interprocess=True), ValueError, "keeps no time"),
        (lambda: again.elapsed_time(again), ValueError, "must be created with argument 'enable_timing=True'"),
    ):
        with pytest.raises(kind, match=text):
            use()


def test_a_handle_of_an_event_that_is_gone():
    handle = torch.accel.Event(interprocess=True).ipc_handle()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="does not exist any more"):
            torch.accel.Event.from_ipc_handle("accel", handle)
        others = [torch.accel.Event(interprocess=True) for _ in range(8)]  # one has its descriptor's number
    assert all(event.query() for event in others)


def test_a_recorder_that_is_killed_fails_the_wait(queued):
    event, side = torch.accel.Event(interprocess=True), torch.accel.Stream()
    recorder = Peer()
    recorder.call(peer.keep, "event", event)
    recorder.call(peer.hold, "h")
    recorder.call(peer.record, "event")
    side.wait_event(event)
    assert not side.query()
    recorder.kill()
    with pytest.raises(torch.AcceleratorError, match="recorded the interprocess event ended before it"):
        side.synchronize()
    with pytest.raises(torch.AcceleratorError, match="recorded the interprocess event ended before it"):
        event.synchronize()


# ---- Ends ----

PARENT = """
    import contextlib, os, signal, torch
    from tests.runtime import peer
    from tests.runtime.peer import Peer
"""


def test_killed_receivers_leave_nothing(script):
    script(
        PARENT
        + """
    if __name__ == "__main__":
        MIB = 1 << 20

        def resources():
            tasks = ["accel-worker"]
            while "accel-worker" in tasks:  # an idle stream gives its thread back, so one may end while we look
                tasks = []
                for number in os.listdir("/proc/self/task"):
                    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                        tasks.append(open(f"/proc/self/task/{number}/comm").read().strip())
            numbers = os.listdir("/proc/self/fd")
            files = [os.readlink(f"/proc/self/fd/{n}") for n in numbers if os.path.lexists(f"/proc/self/fd/{n}")]
            with open("/proc/self/smaps") as maps:
                arenas = maps.read().split("/memfd:accel")[1:]
            return {
                "descriptors": len(files),
                "memory files": sum("memfd" in f for f in files),
                "mapped arenas": len(arenas),
                "their Pss": sum(int(arena.split("Pss:")[1].split()[0]) for arena in arenas),
                "tasks": len(tasks),
            }

        x = torch.ones(24 * MIB // 4, device="accel")
        own = torch.ones(MIB, device="accel")
        warm = Peer()
        warm.call(peer.keep, "own", own)  # the thread that hands descriptors out is made
        warm.kill()
        torch.accel.ipc_collect()
        torch.accel.synchronize()
        before, allocated = resources(), torch.accel.memory_allocated()

        first, second = Peer(), Peer()
        for one in (first, second):
            one.call(peer.keep, "x", x)
            one.call(peer.keep, "own", own[3:])
        assert second.call(peer.fetch, "x").sum() == 6 * MIB
        child = second.call(peer.fork_and_stay)
        during = resources()
        assert during["descriptors"] > before["descriptors"]
        assert during["their Pss"] < before["their Pss"]  # shared in truth, not copied
        del x
        torch.accel.ipc_collect()
        assert torch.accel.memory_allocated() == allocated
        first.kill()
        torch.accel.ipc_collect()
        assert torch.accel.memory_allocated() == allocated  # the second has it
        second.kill()
        # 20 of 64 MiB are free, and 24 were held by the dead: an allocation that needs them gets them.
        x = torch.ones(24 * MIB // 4, device="accel")
        assert torch.accel._C._ipc_counts() == (0, 0)
        torch.accel.synchronize()
        after = resources()
        os.kill(child, signal.SIGKILL)
        assert after == before, (before, during, after)
    """,
        ACCEL_MEMORY="64MiB",
        OMP_NUM_THREADS=1,  # the worker's team would have its name
    )


def test_a_receiver_keeps_what_a_killed_sender_had_finished_and_hears_of_the_rest(queued):
    sender = Peer()
    x = sender.call(peer.ones, 1000)
    unfinished = sender.call(peer.ones_held, 1000)
    sender.kill()
    with pytest.raises(torch.AcceleratorError, match="ended before its queued work on it was done"):
        unfinished.cpu()
    assert torch.equal(x.cpu(), torch.ones(1000))  # its pages live as long as they are mapped
    assert torch.equal((x + 1).cpu(), torch.full((1000,), 2.0))


def test_ends_of_senders(script):
    """A sender that ends with storages not yet received warns as torch.cuda does, and the receiver hears why."""
    done = script(
        PARENT
        + """
    if __name__ == "__main__":
        context = torch.multiprocessing.get_context("spawn")
        for both in (True, False):
            mine, theirs = context.Pipe()
            process = context.Process(target=peer.send, args=(theirs, both))
            process.start()
            if both:
                x = mine.recv()
                mine.send("received")
            process.join()
            if both:
                print(x.tolist())
            else:
                try:
                    mine.recv()
                except RuntimeError as error:
                    print(error)
    """,
    )
    assert_expected_inline(
        done.stdout,
        """\
[1.0, 1.0, 1.0]
accel: the process that shared this storage ended before it was received; keep it alive until then
""",
    )
    assert done.stderr.count("Producer process has been terminated before all shared accel tensors released") == 1


def test_a_device_that_the_receiver_lacks(script):
    script(
        PARENT
        + """
    if __name__ == "__main__":
        torch.accel.init()
        os.environ["ACCEL_DEVICES"] = "1"
        other = Peer()
        try:
            other.call(peer.keep, "x", torch.ones(3, device="accel:1"))
        except RuntimeError as error:
            assert "accel:1" in str(error), error
        else:
            raise AssertionError
        x = torch.ones(3, device="accel:0")
        other.call(peer.keep, "x", x)
        other.call(peer.fill, "x", 2)
        assert x.tolist() == [2, 2, 2]
        torch.accel.ipc_collect()
        assert torch.accel._C._ipc_counts() == (1, 0)
        other.end()
    """,
        ACCEL_DEVICES=2,
    )


def test_a_forked_child_can_neither_send_nor_receive():
    queue = torch.multiprocessing.get_context("fork").SimpleQueue()
    x = torch.ones(3, device="accel")
    texts = torch.multiprocessing.get_context("fork").SimpleQueue()
    process = torch.multiprocessing.get_context("fork").Process(target=peer.try_in_child, args=(x, queue, texts))
    queue.put(x)
    process.start()
    assert [texts.get(), texts.get()] == [
        "Cannot use accel in a forked child process: use the 'spawn' start method",
        "Cannot re-initialize accel in forked subprocess. To use accel with multiprocessing, you must use the 'spawn' start method",
    ]
    process.join()
    process.close()
