"""Random numbers of training: seeds, states, forks and generators; what draws depend on, and what they do not."""

import contextlib
import copy
import hashlib
import io
import json
import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset, WeightedRandomSampler, random_split

from tests.aten.random_oracle import call_key, philox_only, rand
from tests.training.programs import PROGRAMS, losses
from torch_accel.testing import hold_stream


def drawn(n=3):
    """Draws of several operators, on the host."""
    x = torch.ones(50, device="accel")
    calls = [
        lambda: torch.rand(50, device="accel"),
        lambda: nn.functional.dropout(x),
        lambda: torch.randn_like(x),
        lambda: torch.randperm(50, device="accel").float(),
        lambda: torch.multinomial(x, 5).float(),
        lambda: nn.functional.alpha_dropout(x, training=True),
    ]
    return torch.cat([call().cpu() for _ in range(n) for call in calls])


@pytest.mark.parametrize("name", ["LSTM tagger", "recommender"])
def test_the_same_seed_trains_the_same(name):
    assert losses(name, "accel", 4) == losses(name, "accel", 4)


SEEDINGS = {
    "torch": torch.manual_seed,
    "torch.random": torch.random.manual_seed,
    "torch.accel": torch.accel.manual_seed,
    "torch.accel, all": torch.accel.manual_seed_all,
    "default generator": lambda seed: torch.accel.default_generators[0].manual_seed(seed),
    "negative": lambda seed: torch.manual_seed(seed - 2**64),
}


@pytest.mark.parametrize("seed", SEEDINGS.values(), ids=SEEDINGS.keys())
def test_every_way_of_seeding_draws_the_same(seed):
    torch.manual_seed(2**63 + 5)
    expected = drawn()
    assert not torch.equal(drawn(), expected)
    seed(2**63 + 5)
    assert torch.equal(drawn(), expected) and torch.accel.initial_seed() == 2**63 + 5


def test_a_fresh_seed_is_another_each_time():
    seeds = [torch.accel.initial_seed() for fresh in (torch.accel.seed, torch.accel.seed_all) * 2 if fresh() is None]
    assert len(set(seeds)) == 4


@pytest.mark.parametrize("stored", ["tensor", "saved"])
def test_training_resumes_from_a_state(stored):
    torch.manual_seed(0)
    program = PROGRAMS["tagger of cells"]("accel", 6)
    for batch in program.batches[:3]:
        program.step(*batch)
    state = {
        "model": program.model.state_dict(),
        "optimizer": program.optimizer.state_dict(),
        "rng": torch.accel.get_rng_state(),
    }
    if stored == "saved":
        buffer = io.BytesIO()
        torch.save(state, buffer)
        buffer.seek(0)
        state = torch.load(buffer, weights_only=True)
    else:
        state = copy.deepcopy(state)
    expected = [program.step(*batch).item() for batch in program.batches[3:]]
    torch.accel.manual_seed(77)
    program.model.load_state_dict(state["model"])
    program.optimizer.load_state_dict(state["optimizer"])
    assert state["rng"].device.type == "cpu"
    torch.accel.set_rng_state(state["rng"])
    assert [program.step(*batch).item() for batch in program.batches[3:]] == expected


def test_states_round_trip_midway():
    drawn(1)
    state, all_states = torch.accel.get_rng_state(), torch.accel.get_rng_state_all()
    expected = drawn()
    for restore in (lambda: torch.accel.set_rng_state(state), lambda: torch.accel.set_rng_state_all(all_states)):
        restore()
        assert torch.equal(torch.accel.get_rng_state(), state)
        assert torch.equal(drawn(), expected)
    torch.accel.set_rng_state(state, "accel:0")
    assert torch.equal(drawn(), expected)


@pytest.mark.parametrize("fails", [False, True])
def test_a_fork_ends_where_it_began(fails):
    torch.manual_seed(1)
    cpu, accel = torch.get_rng_state(), torch.accel.get_rng_state()
    with contextlib.suppress(KeyError), torch.random.fork_rng(devices=[0], device_type="accel"):
        torch.manual_seed(2)
        inside = drawn()
        torch.rand(3)
        if fails:
            raise KeyError
    assert torch.equal(torch.get_rng_state(), cpu) and torch.equal(torch.accel.get_rng_state(), accel)
    first = drawn()
    torch.manual_seed(2)
    assert torch.equal(drawn(), inside) and not torch.equal(first, inside)
    with torch.random.fork_rng(enabled=False, device_type="accel"):
        moved = drawn()
    torch.manual_seed(2)
    drawn()
    assert torch.equal(drawn(), moved)


def test_devices_have_generators_of_their_own(script):
    script(
        """
        import torch
        from torch.utils.checkpoint import checkpoint
        draw = lambda index: torch.rand(20, device=f"accel:{index}").cpu()
        torch.manual_seed(3)
        assert [g.initial_seed() for g in torch.accel.default_generators] == [3, 3]
        zero = draw(0)
        assert torch.equal(zero, draw(1))  # one seed for all, as torch.cuda
        torch.accel.manual_seed(4)
        assert [g.initial_seed() for g in torch.accel.default_generators] == [4, 3]  # the current device
        torch.accel.manual_seed_all(5)
        one = draw(1)
        states = torch.accel.get_rng_state_all()
        assert len(states) == 2 and not torch.equal(*states)
        assert torch.equal(draw(0), one)
        second = draw(1)
        torch.accel.set_rng_state(states[1], 1)
        assert torch.equal(draw(1), second)
        torch.accel.set_rng_state_all(states)
        assert torch.equal(draw(1), second) and torch.equal(draw(0), one)
        with torch.random.fork_rng(devices=[1], device_type="accel"):
            before = torch.accel.get_rng_state_all()
            draw(0), draw(1)
        after = torch.accel.get_rng_state_all()
        assert torch.equal(before[1], after[1]) and not torch.equal(before[0], after[0])
        with torch.random.fork_rng(device_type="accel"):  # all of them
            third = draw(1)
        assert torch.equal(draw(1), third)
        torch.accel.set_device(1)
        torch.accel.manual_seed(6)
        assert torch.accel.initial_seed() == 6 and torch.accel.default_generators[0].initial_seed() == 5
        assert torch.Generator("accel").device == torch.device("accel:1")
        # checkpoints restore the generators of all devices that their inputs are on
        def block(a, b):
            return torch.dropout(a, 0.5, True) * torch.dropout(b, 0.5, True).to(a.device)
        for reentrant in (False, True):
            results = []
            for run in (block, lambda *inputs: checkpoint(block, *inputs, use_reentrant=reentrant)):
                torch.manual_seed(3)
                a = torch.ones(200, device="accel:1").mul_(2).requires_grad_()
                b = torch.ones(200, device="accel:0").mul_(3).requires_grad_()
                out = run(a, b)
                torch.rand(7, device="accel:0"), torch.rand(7, device="accel:1")  # the states move on
                states = torch.accel.get_rng_state_all()
                out.sum().backward()
                assert all(map(torch.equal, states, torch.accel.get_rng_state_all()))
                results.append((out, a.grad, b.grad))
            assert all(map(torch.equal, *results)), reentrant
            assert torch.equal(results[0][1] != 0, results[0][0] != 0)
        """,
        ACCEL_DEVICES=2,
    )


def test_generators_passed_explicitly_are_the_only_ones_that_move():
    default, cpu = torch.accel.get_rng_state(), torch.get_rng_state()
    g = torch.Generator("accel").manual_seed(8)
    calls = [
        lambda: torch.randperm(30, device="accel", generator=g),
        lambda: torch.randint(9, (30,), device="accel", generator=g),
        lambda: torch.multinomial(torch.ones(30, device="accel"), 9, generator=g),
        lambda: nn.init.kaiming_normal_(torch.empty(5, 6, device="accel"), generator=g),
        lambda: torch.empty(9, device="accel").bernoulli_(0.5, generator=g),
    ]
    first = [call() for call in calls]
    assert torch.equal(torch.accel.get_rng_state(), default) and torch.equal(torch.get_rng_state(), cpu)
    second = [call() for call in calls]
    g.manual_seed(8)
    assert all(map(torch.equal, first, [call() for call in calls]))
    assert not torch.equal(first[0], second[0]) and sorted(first[0].tolist()) == list(range(30))


DATA = TensorDataset(torch.arange(24))
LOADERS = {
    "shuffle": lambda g: DataLoader(DATA, 5, shuffle=True, generator=g),
    "RandomSampler": lambda g: DataLoader(DATA, 5, sampler=RandomSampler(DATA, generator=g)),
    "with replacement": lambda g: DataLoader(DATA, 5, sampler=RandomSampler(DATA, True, 40, generator=g)),
    "weights": lambda g: DataLoader(DATA, 5, sampler=WeightedRandomSampler(range(24), 40, generator=g)),
    "random_split": lambda g: DataLoader(random_split(DATA, [10, 14], generator=g)[0]),
}


@pytest.mark.parametrize("make", LOADERS.values(), ids=LOADERS.keys())
def test_loaders_shuffle_on_the_cpu(make):
    def order(g):
        return [x for (batch,) in make(g) for x in batch.tolist()]

    accel = torch.accel.get_rng_state()
    expected = order(torch.Generator().manual_seed(3))
    assert torch.equal(torch.accel.get_rng_state(), accel)
    # draws of the device in between change nothing
    loader, mixed = make(torch.Generator().manual_seed(3)), []
    for (batch,) in loader:
        torch.rand(3, device="accel")
        mixed += batch.to("accel").tolist()
    assert mixed == expected
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'accel'"):
        order(torch.Generator("accel"))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_do_not_matter(threads):
    before = torch.get_num_threads()
    torch.manual_seed(4)
    expected = torch.cat([torch.dropout(torch.ones(70_000, device="accel"), 0.5, True).cpu(), drawn(1)])
    try:
        torch.set_num_threads(threads)
        torch.manual_seed(4)
        again = torch.cat([torch.dropout(torch.ones(70_000, device="accel"), 0.5, True).cpu(), drawn(1)])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(again, expected)


@philox_only
def test_the_order_of_calls_decides_not_the_order_of_launches(queued):
    side = torch.accel.Stream()
    torch.manual_seed(5)
    expected = [torch.rand(100, device="accel") for _ in range(4)]
    torch.manual_seed(5)
    actual = []
    with hold_stream():  # what is drawn first is computed last
        for i in range(4):
            with torch.accel.stream(side if i % 2 else torch.accel.current_stream()):
                actual.append(torch.rand(100, device="accel"))
        side.synchronize()
        assert not torch.accel.current_stream().query()
    torch.accel.synchronize()
    assert all(map(torch.equal, actual, expected))


@philox_only
def test_threads_share_a_generator_without_a_number_twice():
    n, calls = 4, 60
    g = torch.Generator("accel").manual_seed(6)
    results = [[] for _ in range(n)]
    start = threading.Barrier(n)

    def draw(mine):
        start.wait()
        mine.extend(torch.rand(8, device="accel", generator=g) for _ in range(calls))

    threads = [threading.Thread(target=draw, args=(mine,)) for mine in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert g.get_offset() == 4 * n * calls
    rows = torch.stack([row for mine in results for row in mine]).cpu().numpy()
    expected = np.stack([rand(call_key(6, 4 * i), 8) for i in range(n * calls)])
    assert {row.tobytes() for row in rows} == {row.tobytes() for row in expected}


TIMINGS = {"late": {"ACCEL_DELAY_US": "200"}, **{f"schedule {i}": {"ACCEL_SCHEDULE_SEED": str(i)} for i in (1, 2)}}
TIMED = [pytest.param(timing, marks=[] if name == "late" else pytest.mark.full) for name, timing in TIMINGS.items()]


@philox_only
@pytest.mark.parametrize("timing", TIMED, ids=TIMINGS.keys())
def test_timing_does_not_matter(script, timing):
    source = """
    import hashlib
    import torch
    from tests.training.test_random import drawn
    torch.manual_seed(9)
    print(hashlib.sha256(drawn().numpy().tobytes()).hexdigest())
    """
    torch.manual_seed(9)
    assert script(source, **timing).stdout.strip() == hashlib.sha256(drawn().numpy().tobytes()).hexdigest()


# A rank of a group of two that exchanges nothing: DTensor draws without a word to the other rank.
RANK = """
import json, torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate, Shard, init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

torch.accel.set_device(0)
dist.init_process_group("cpu:fake,accel:fake", rank={rank}, world_size=2, store=FakeStore())
mesh = init_device_mesh("accel", (2,))
torch.manual_seed(0)
for placement in (Shard(0), Replicate()):
    for device in ("accel", "cpu"):  # what is local to the CPU is moved, never drawn there
        part = DTensor.from_local(torch.ones(20, 3, device=device), mesh, [placement], run_check=False)
        for draw in (torch.Tensor.uniform_, torch.Tensor.normal_, lambda x: torch.nn.functional.dropout(x.fill_(1)), torch.rand_like):
            local = draw(part).to_local()
            assert local.is_accel
            print(json.dumps([str(placement), local.tolist(), torch.accel.get_rng_state().tolist()]))
dist.destroy_process_group()
"""


def test_49_shards_of_a_dtensor_differ_and_replicas_are_the_same(script):
    ranks = [script(RANK.format(rank=rank)).stdout.splitlines() for rank in (0, 1)]
    drawn = [[json.loads(line) for line in rank] for rank in ranks]
    assert len(drawn[0]) == len(drawn[1]) == 16
    for (placement, first, state), (_, second, other_state) in zip(*drawn, strict=True):
        assert (first == second) == (placement == "R")
        assert state == other_state
    states = [state for _, _, state in drawn[0]]
    assert len({tuple(state) for state in states}) == 16  # each draw takes numbers of its own
