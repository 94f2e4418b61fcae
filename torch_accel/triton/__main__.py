"""The command ``accel-triton``, or ``python -m torch_accel.triton``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from .tools import dump


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command with its arguments (the process's own if None); gives the process's exit status."""
    parser = argparse.ArgumentParser(prog="accel-triton", description="Triton kernels on accel, seen from outside.")
    commands = parser.add_subparsers(required=True, metavar="command")
    dump.add_to(commands)
    given = parser.parse_args(arguments)
    return int(given.run(given))


if __name__ == "__main__":
    raise SystemExit(main())
