"""Generates kernels and runs each at every level: ``python -m tests.triton.fuzz --seeds 0:1000 --report``."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable

from .cells import Coverage
from .generator import generate
from .minimise import failure, minimised
from .program import Program


def command(program: Program) -> str:
    """What runs a program again."""
    numbers = f" --choices {','.join(map(str, program.choices))}" if program.choices else ""
    return f"python -m tests.triton.fuzz --seeds {program.seed}{numbers}"


def explained(program: Program, how: str) -> str:
    """A failing program, so that it can be run again."""
    return f"seed {program.seed}: {how}\n{program.kernel()}memories {program.memories}, {program.pointers}\n{program.scalars}, grid {program.grid}\n{command(program)}"


def fuzz(
    seeds: Iterable[int],
    coverage: Coverage,
    native: bool = True,
    seconds: float = float("inf"),
    say: Callable[[str], None] = print,
    small: bool = True,
) -> list[int]:
    """Runs the programs of some seeds; gives those that fail, each explained by ``say`` and made smaller if ``small``."""
    failed, end = [], time.monotonic() + seconds
    for seed in seeds:
        if time.monotonic() > end:
            say(f"seed {seed} and those behind it are left out: the time is over")
            break
        program = generate(seed)
        how = failure(program, native)
        coverage.add(program.cells)
        if how:
            failed.append(seed)
            if small:
                program = minimised(program, lambda one, how=how: failure(one, native) == how)  # type: ignore[misc]
            say(explained(program, how))
    return failed


def main() -> int:
    """The exit code is 1 if a program fails."""
    options = argparse.ArgumentParser(prog="python -m tests.triton.fuzz", description=__doc__)
    options.add_argument("--seeds", required=True, help="A, or A:B for those from A on and below B")
    options.add_argument(
        "--choices", help="numbers with commas between: the program that they make, on the seed's data"
    )
    options.add_argument("--seconds", type=float, default=float("inf"), help="begin no program after these")
    options.add_argument("--report", action="store_true", help="print which cells were reached")
    options.add_argument("--generate", action="store_true", help="run nothing: what the programs would reach")
    options.add_argument("--no-native", action="store_true", help="interpreters only")
    given = options.parse_args()
    first, _, last = given.seeds.partition(":")
    seeds = range(int(first), int(last) if last else int(first) + 1)
    coverage, failed = Coverage(), list[int]()
    if given.choices is not None:
        program = generate(seeds[0], [int(number) for number in given.choices.split(",")])
        how = failure(program, not given.no_native)
        print(explained(program, how or "nothing differs"))
        return int(bool(how))
    if given.generate:
        for seed in seeds:
            coverage.add(generate(seed).cells)
    else:
        failed = fuzz(seeds, coverage, not given.no_native, given.seconds)
        print(f"{coverage.programs} programs, {len(failed)} fail{f': {failed}' if failed else ''}")
    if given.report:
        print(coverage.report())
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
