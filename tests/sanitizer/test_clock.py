"""The algebra alone: what comes after what, and which bytes meet."""

import itertools
import random

import pytest

from torch_accel import _C

A, B, C = range(3)


@pytest.fixture
def order():
    return _C._SanitizerOrder()


def test_streams_are_not_ordered(order):
    order.enqueue(A, 1)
    assert order.ordered(A, A, 1) and not order.ordered(B, A, 1)


def test_a_wait_orders_what_was_there(order):
    order.enqueue(A, 1)
    order.wait(B, A, 1)
    order.enqueue(A, 2)
    assert order.ordered(B, A, 1) and not order.ordered(B, A, 2)
    assert not order.ordered(A, B, 1)


def test_waits_are_transitive(order):
    order.enqueue(A, 1)
    order.wait(B, A, 1)
    order.enqueue(B, 1)
    order.wait(C, B, 1)
    assert order.ordered(C, A, 1)


def test_a_wait_brings_what_the_ticket_knew_then(order):
    order.enqueue(B, 1)
    order.enqueue(A, 1)
    order.wait(B, A, 1)  # from ticket 2 of B on
    order.enqueue(B, 2)
    order.wait(C, B, 1)
    assert order.ordered(C, B, 1) and not order.ordered(C, A, 1)
    order.wait(C, B, 2)
    assert order.ordered(C, A, 1)


def test_what_the_host_knows_is_before_all_that_comes(order):
    order.enqueue(A, 1)
    order.enqueue(A, 2)
    order.complete(A, 1)
    assert order.host_knows(A, 1) and not order.host_knows(A, 2)
    assert order.ordered(B, A, 1) and not order.ordered(B, A, 2)


def test_the_host_learns_what_a_stream_waited_for(order):
    order.enqueue(A, 7)
    order.wait(B, A, 7)
    order.enqueue(B, 1)
    order.complete(B, 1)
    assert order.host_knows(A, 7)


def test_an_older_ticket_tells_no_more(order):
    order.enqueue(B, 1)
    order.enqueue(A, 1)
    order.wait(B, A, 1)
    order.enqueue(B, 2)
    order.complete(B, 1)
    assert order.host_knows(B, 1) and not order.host_knows(A, 1)


def test_the_past_is_forgotten_once_the_host_knows_it(order):
    for step in range(1, 1000):
        order.enqueue(A, step)
        order.wait(B, A, step)
        order.enqueue(B, step)
        order.complete(B, step)
    assert order.remembered() < 10


@pytest.mark.parametrize("seed", range(20))
def test_against_a_graph_of_launches(order, seed):
    """Random programs: the clocks say what reachability in the graph of launches says."""
    rng = random.Random(seed)
    before: dict[tuple[int, int], set] = {}  # launch -> all that come before it, itself included
    last, waited, host = [0] * 4, [set() for _ in range(4)], set()
    for _ in range(200):
        stream, other = rng.randrange(4), rng.randrange(4)
        match rng.choice(["launch", "launch", "wait", "complete"]):
            case "launch":
                last[stream] += 1
                launch = (stream, last[stream])
                before[launch] = {launch} | waited[stream] | host | before.get((stream, last[stream] - 1), set())
                order.enqueue(*launch)
            case "wait" if last[other]:
                ticket = rng.randint(1, last[other])
                waited[stream] |= before[other, ticket]
                order.wait(stream, other, ticket)
            case "complete" if last[other]:
                ticket = rng.randint(1, last[other])
                host |= before[other, ticket]
                order.complete(other, ticket)
        for launch in before:
            known = waited[stream] | host | before.get((stream, last[stream]), set())
            assert order.ordered(stream, *launch) == (launch in known)


def touched(first, last, run, pitch):
    places = range(first, last)
    return {place for place in places if pitch == 0 or (place - first) % pitch < run}


COMBS = [
    (first, first + length, run, pitch)
    for first, length in [(0, 24), (1, 24), (3, 9), (4, 24), (10, 3), (13, 1), (30, 8)]
    for run, pitch in [(0, 0), (1, 4), (2, 4), (2, 6), (3, 8), (1, 3)]
]


def test_which_bytes_meet():
    exact = 0
    for a, b in itertools.product(COMBS, COMBS):
        left, right = _C._SanitizerBytes(*a), _C._SanitizerBytes(*b)
        meet = bool(touched(*a) & touched(*b))
        assert left.overlaps(right) == right.overlaps(left)
        assert left.overlaps(right) or not meet, (a, b)  # nothing is missed
        exact += left.overlaps(right) == meet
        if left.contains(right):
            assert touched(*b) <= touched(*a), (a, b)
    assert exact / len(COMBS) ** 2 > 0.9


@pytest.mark.parametrize("shape", [(64, 8), (5, 7), (2, 3)])
def test_columns_of_one_matrix_do_not_meet(shape):
    rows, columns = shape
    for cut in range(1, columns):
        left = _C._SanitizerBytes(0, rows * columns * 4 - (columns - cut) * 4, cut * 4, columns * 4)
        right = _C._SanitizerBytes(cut * 4, rows * columns * 4, (columns - cut) * 4, columns * 4)
        assert not left.overlaps(right)
        assert left.overlaps(left) and left.contains(left)
