"""The transcript on README.md's first screen is what its commands print."""

import os
import re
import shlex
import subprocess
import sys

from tests.docs.markdown import ROOT, blocks


def run(command: str) -> str:
    """What a command of the transcript shows: its last lines, as a terminal would, without what differs by machine."""
    variables = dict(re.findall(r"(\w+)=(\S+) ", command))
    words = shlex.split(re.sub(r"^(\w+=\S+ )*", "", command))
    # On a busy machine the worker might be first after all: the delay makes it late, as it nearly always is.
    env = {
        **os.environ,
        "ACCEL_DELAY_US": "20000",
        "ACCEL_LAUNCH_BLOCKING": "0",
        "ACCEL_POISON": "0",
        "ACCEL_SANITIZER": "0",
    }
    env |= variables
    words[0] = {"python": sys.executable}.get(words[0], words[0])
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
    return done.stdout + done.stderr.partition("RuntimeError: ")[2]


def normal(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+", "ADDRESS", text).replace(str(ROOT) + "/", "")


def test_transcript():
    (transcript,) = (block.text for block in blocks(ROOT / "README.md") if block.text.startswith("$ "))
    commands = re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", transcript, flags=re.M)
    assert len(commands) == 4
    for command, shown in commands:
        assert normal(run(command)) == normal(shown), command
