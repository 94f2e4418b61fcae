"""The measured table of docs/triton.md is what docs/triton.json says."""

import dataclasses
import json

import pytest

from benchmarks import triton_page as page
from benchmarks.harness import Measured

HEAD = {"machine": "a machine", "cores": 2, "threads": 1, "load": 1.0, "torch": "2.13", "commit": "abc", "rounds": 15}
ADD = Measured("add", 400.0, 320.0, 1.2, 1.25, 1.3, (1.21, 1.29), 15, "speed", target=">= 1", verdict="met")


def test_the_table_tells_what_was_measured():
    text = page.text({**HEAD, "workloads": [dataclasses.asdict(ADD)]})
    assert "| add | 0.400 | 0.320 | 1.25 | 1.21 to 1.29 | >= 1 | met |" in text
    assert "a machine, 2 cores, 1 threads, torch 2.13, commit abc, load 1.0" in text


def test_only_what_is_between_the_markers_changes():
    before = f"head\n{page.BEGIN}old\n{page.END}tail\n"
    assert page.put(before, "new\n") == f"head\n{page.BEGIN}new\n{page.END}tail\n"
    with pytest.raises(ValueError, match="the page has no lines"):
        page.put("head\n", "new\n")


def test_a_part_of_the_workloads_is_no_page():
    with pytest.raises(ValueError, match="were not measured: softmax; leave out -k"):
        page.write([ADD], ["add", "softmax"])


def test_the_committed_table_fits_the_committed_figures():
    shown = page.PAGE.read_text()
    if page.DATA.exists():
        assert page.put(shown, page.text(json.loads(page.DATA.read_text()))) == shown
    else:
        assert page.put(shown, "") != shown, "the page has lost its markers"
