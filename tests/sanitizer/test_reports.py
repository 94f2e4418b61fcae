"""What users read: whole texts, raised and warned."""

import re
import warnings

import pytest
import torch
from expecttest import assert_expected_inline

from torch_accel import sanitizer


def plain(text: str) -> str:
    """Without what differs from run to run: addresses, ids of streams, paths, tickets."""
    text = re.sub(r"0x[0-9a-f]+", "0x...", text)
    text = re.sub(r"    \(\d+ more\)\n", "", text)
    text = re.sub(r" \(Triggered internally at .*?\)", "", text)
    # Of the stacks, the frames of this file.
    text = re.sub(r'    File "(?!\S*test_reports\.py)[^"]*", line \d+, in .*\n(      .*\n)?', "", text)
    text = re.sub(r'File "\S*/(\w+\.py)", line \d+', r'File "\1", line N', text)
    return re.sub(r"\bstream \d+", "stream N", text)


def produce(side, x):
    with torch.accel.stream(side):
        return x * 2


def test_a_missing_wait():
    side = torch.accel.Stream()
    x = torch.ones(4, 8, device="accel")
    side.wait_stream(torch.accel.current_stream())
    with sanitizer.enabled("raise"):
        y = produce(side, x)
        with pytest.raises(RuntimeError) as caught:
            y.add_(1)
    assert_expected_inline(
        plain(str(caught.value)),
        """\
accel sanitizer: add on the default stream of accel:0 writes memory that mul on stream N of accel:0 writes, and nothing orders the two
  memory: 128 bytes at 0x... in the block of 512 bytes at 0x..., storage 0x...
  first: mul writes, on stream N of accel:0
    File "test_reports.py", line N, in test_a_missing_wait
      y = produce(side, x)
    File "test_reports.py", line N, in produce
      return x * 2
  second: add writes, on the default stream of accel:0
    File "test_reports.py", line N, in test_a_missing_wait
      y.add_(1)
  fix: between the two, let the default stream of accel:0 wait for stream N of accel:0: wait_stream(), or wait_event() of an event recorded behind the first""",
    )


def test_an_early_read():
    x = torch.ones(4, device="accel")
    host = torch.zeros(4, pin_memory=True)
    with sanitizer.enabled("raise"):
        host.copy_(x, non_blocking=True)
        with pytest.raises(RuntimeError) as caught:
            host[1:].add(1)
    assert_expected_inline(
        plain(str(caught.value)),
        """\
accel sanitizer: add on the host reads memory that copy_ on the default stream of accel:0 writes, and nothing orders the two
  memory: 12 bytes at 0x... (Float[3]), storage 0x...
  first: copy_ writes, on the default stream of accel:0
    File "test_reports.py", line N, in test_an_early_read
      host.copy_(x, non_blocking=True)
  second: add reads, on the host
    File "test_reports.py", line N, in test_an_early_read
      host[1:].add(1)
  fix: before the host reads, wait for the first: synchronize() of its stream, or of an event recorded behind it""",
    )


def test_an_overwritten_source():
    host = torch.ones(4, pin_memory=True)
    with sanitizer.enabled("raise"):
        host.to("accel", non_blocking=True)
        with pytest.raises(RuntimeError) as caught:
            host.zero_()
    assert_expected_inline(
        plain(str(caught.value)),
        """\
accel sanitizer: zero_ on the host writes memory that copy_ on the default stream of accel:0 reads, and nothing orders the two
  memory: 16 bytes at 0x... (Float[4]), storage 0x...
  first: copy_ reads, on the default stream of accel:0
    File "test_reports.py", line N, in test_an_overwritten_source
      host.to("accel", non_blocking=True)
  second: zero_ writes, on the host
    File "test_reports.py", line N, in test_an_overwritten_source
      host.zero_()
  fix: before the host writes, wait for the first: synchronize() of its stream, or of an event recorded behind it""",
    )


def test_a_missing_record_stream():
    main, side = torch.accel.current_stream(), torch.accel.Stream()
    with sanitizer.enabled("raise"), torch.accel.use_mem_pool(torch.accel.MemPool()):
        x = torch.ones(1 << 20, device="accel")
        side.wait_stream(main)
        produce(side, x)
        del x
        with pytest.raises(RuntimeError) as caught:
            torch.zeros(1 << 20, device="accel")
    assert_expected_inline(
        plain(str(caught.value)),
        """\
accel sanitizer: fill_ on the default stream of accel:0 writes memory that mul on stream N of accel:0 reads, and nothing orders the two
  memory: 4194304 bytes at 0x... in the block of 4194304 bytes at 0x..., storage 0x...
  first: mul reads, on stream N of accel:0
    File "test_reports.py", line N, in test_a_missing_record_stream
      produce(side, x)
    File "test_reports.py", line N, in produce
      return x * 2
  second: fill_ writes, on the default stream of accel:0
    File "test_reports.py", line N, in test_a_missing_record_stream
      torch.zeros(1 << 20, device="accel")
  fix: the memory was freed and given out again between the two. Before the first tensor is freed, call its record_stream() with stream N of accel:0, or let the stream that it was made on wait for that one (wait_stream)""",
    )


def test_a_backward():
    main, side = torch.accel.current_stream(), torch.accel.Stream()
    w = torch.ones(4, device="accel", requires_grad=True)
    side.wait_stream(main)
    with sanitizer.enabled("raise"):
        with torch.accel.stream(side):
            loss = w.exp().sum()
            loss.backward()
        with pytest.raises(RuntimeError) as caught:
            w.grad.mul_(2)
    assert_expected_inline(
        plain(str(caught.value)),
        """\
accel sanitizer: mul on the default stream of accel:0 writes memory that mul on stream N of accel:0 writes, and nothing orders the two
  memory: 16 bytes at 0x... in the block of 512 bytes at 0x..., storage 0x...
  first: mul writes, on stream N of accel:0, in the backward (ExpBackward0) of what was called at
    File "test_reports.py", line N, in test_a_backward
      loss = w.exp().sum()
  second: mul writes, on the default stream of accel:0
    File "test_reports.py", line N, in test_a_backward
      w.grad.mul_(2)
  fix: between the two, let the default stream of accel:0 wait for stream N of accel:0: wait_stream(), or wait_event() of an event recorded behind the first""",
    )


def test_a_replay():
    x = torch.ones(4, device="accel")
    graph = torch.accel.AccelGraph()
    torch.accel.synchronize()
    with sanitizer.enabled("raise"):
        with torch.accel.graph(graph):
            y = x + 1
        graph.replay()
        with torch.accel.stream(torch.accel.Stream()), pytest.raises(RuntimeError) as caught:
            y.mul(2)
    assert_expected_inline(
        plain(str(caught.value)),
        """\
accel sanitizer: mul on stream N of accel:0 reads memory that add on the default stream of accel:0 writes, and nothing orders the two
  memory: 16 bytes at 0x... in the block of 512 bytes at 0x..., storage 0x...
  first: add writes, on the default stream of accel:0, in a graph captured at
    File "test_reports.py", line N, in test_a_replay
      y = x + 1
  second: mul reads, on stream N of accel:0
    File "test_reports.py", line N, in test_a_replay
      y.mul(2)
  fix: between the two, let stream N of accel:0 wait for the default stream of accel:0: wait_stream(), or wait_event() of an event recorded behind the first""",
    )


def test_warnings_come_once_a_pair_of_lines():
    side = torch.accel.Stream()
    x, results = torch.ones(4, device="accel"), []
    torch.accel.synchronize()
    with sanitizer.enabled("warn"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            results.append(produce(side, x))
            results[-1].add_(1)
        torch.accel.synchronize()
    assert len(caught) == 1 == len(sanitizer.report())
    assert_expected_inline(
        plain(str(caught[0].message)),
        """\
accel sanitizer: add on the default stream of accel:0 writes memory that mul on stream N of accel:0 writes, and nothing orders the two
  memory: 16 bytes at 0x... in the block of 512 bytes at 0x..., storage 0x...
  first: mul writes, on stream N of accel:0
    File "test_reports.py", line N, in test_warnings_come_once_a_pair_of_lines
      results.append(produce(side, x))
    File "test_reports.py", line N, in produce
      return x * 2
  second: add writes, on the default stream of accel:0
    File "test_reports.py", line N, in test_warnings_come_once_a_pair_of_lines
      results[-1].add_(1)
  fix: between the two, let the default stream of accel:0 wait for stream N of accel:0: wait_stream(), or wait_event() of an event recorded behind the first""",
    )
    assert caught[0].filename == __file__


def test_the_report():
    side = torch.accel.Stream()
    x = torch.ones(4, device="accel")
    torch.accel.synchronize()
    assert str(sanitizer.report()) == "accel sanitizer: no race found"
    with sanitizer.enabled("raise"):
        y = produce(side, x)
        with pytest.raises(RuntimeError) as caught:
            y[1:3].add_(1)
    (race,) = sanitizer.report()
    assert str(race) == race.text == str(caught.value) == str(sanitizer.report())
    assert (race.first.operator, race.second.operator) == ("mul", "add")
    assert (race.first.access, race.second.access) == ("write", "write")
    assert race.first.stream == f"stream {side.stream_id} of accel:0"
    assert race.second.stream == "the default stream of accel:0"
    assert race.remedy == "wait_stream" and race.first.backward == ""
    assert (race.address, race.bytes) == (y.data_ptr() + 4, 8)
    assert race.first.stack[-1].function == "produce"
    assert race.second.stack[-1].function == "test_the_report"
    assert sanitizer.report(reset=True) == [race] and sanitizer.report() == []


def test_what_raises_is_not_enqueued():
    side = torch.accel.Stream()
    x = torch.ones(4, device="accel")
    torch.accel.synchronize()
    with sanitizer.enabled("raise"):
        y = produce(side, x)
        with pytest.raises(RuntimeError, match="accel sanitizer"):
            y.add_(1)
        torch.accel.current_stream().wait_stream(side)
        y.add_(1)
    assert y.tolist() == [3.0] * 4
