"""What docs/triton.md shows of ``accel-triton dump`` is what the command prints. ``EXPECTTEST_ACCEPT=1`` rewrites the page.

A block is a transcript: the command, then its output; a line ``...`` stands for lines that are left out.
"""

import os
import re
import shlex

import pytest
import triton

from tests.docs.markdown import ROOT, blocks
from torch_accel.triton.__main__ import main

PAGE = ROOT / "docs" / "triton.md"
COMMAND = "$ accel-triton dump docs/"


def transcripts():
    return [block.text for block in blocks(PAGE) if block.text.startswith(COMMAND)]


def matches(shown, printed):
    """Whether lines that are shown are those that are printed, but for the ones left out."""
    pattern = "".join("(?:.*\n)*?" if line == "..." else re.escape(line) + "\n" for line in shown.splitlines())
    return re.fullmatch(pattern, printed) is not None


def test_lines_may_be_left_out():
    assert matches("a\n...\nd\n", "a\nb\nc\nd\n")
    assert not matches("a\n...\nd\n", "a\nb\nc\n")
    assert not matches("a\nd\n", "a\nb\nd\n")


@pytest.mark.skipif(not triton.__version__.startswith("3.7."), reason="the page shows what Triton 3.7 emits")
@pytest.mark.parametrize("number", range(3))
def test_transcript(number, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    text = transcripts()[number]
    command, _, shown = text.partition("\n")
    assert main(shlex.split(command.removeprefix("$ accel-triton "))) == 0
    printed = capsys.readouterr().out.rstrip() + "\n"
    if os.environ.get("EXPECTTEST_ACCEPT") and not matches(shown, printed):
        PAGE.write_text(PAGE.read_text().replace(text, f"{command}\n{printed}"))
        return
    assert matches(shown, printed), f"{command}\n{printed}"


def test_all_are_tested():
    assert len(transcripts()) == 3
