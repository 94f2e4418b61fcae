"""Runs the chip's tests under sanitizers: ``python tests/driver/sanitize.py [SECONDS]`` runs them all.

Ends with exit code 1 and the reports if ThreadSanitizer, AddressSanitizer or UBSan find anything.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import build

FLAGS = {
    "thread": ("-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=thread"),
    "address": (
        *("-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined"),
        "-fno-sanitize-recover=all",
    ),
}


def run_stress(
    sanitizer: str, seconds: float, driver: Path = build.DRIVER, seed: int = 1
) -> subprocess.CompletedProcess[str]:
    """Builds ``driver`` under ``sanitizer`` ("thread" or "address") and runs the stress test."""
    program = build.build_stress(FLAGS[sanitizer], driver)
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("ACCEL_")},
        "TSAN_OPTIONS": "halt_on_error=1",
        "ASAN_OPTIONS": "detect_leaks=1",
    }

    def run(*prefix: str) -> subprocess.CompletedProcess[str]:
        command = [*prefix, str(program), str(seconds), str(seed)]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60 + 10 * seconds)

    done = run()
    if "unexpected memory mapping" in done.stderr:
        # Kernels that randomise addresses by more bits than ThreadSanitizer's shadow has.
        done = run("setarch", "-R")
    return done


def run_tests() -> subprocess.CompletedProcess[str]:
    """Runs the Python tests of the chip with its module built under AddressSanitizer.

    Not under ThreadSanitizer: the tests release streams by plain stores of NumPy, which it takes for races.
    """
    # The C++ library too, or the sanitizer finds no function to intercept at the first throw.
    preload = [
        subprocess.check_output([build.compiler(), f"-print-file-name={name}"], text=True).strip()
        for name in ("libasan.so", "libstdc++.so")
    ]
    environment = {
        **os.environ,
        "DRIVER_SANITIZER": "address",
        "LD_PRELOAD": " ".join(preload),
        # Python keeps memory until it ends; our fault handler must see the faults that tests provoke.
        "ASAN_OPTIONS": "detect_leaks=0:handle_segv=0",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not full and not sanitizer"]
    command += ["--capture=sys"]  # a report of the sanitizer is no test's output
    here = Path(__file__)
    command += [str(here.parent), "--ignore", str(here.with_name("test_layering.py"))]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20
    failures = 0
    for sanitizer in FLAGS:
        done = run_stress(sanitizer, seconds)
        clean = done.returncode == 0 and done.stderr == ""
        failures += not clean
        report = "clean" if clean else f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
        sys.stdout.write(f"stress under {sanitizer} sanitizer, {seconds:g} s: {report}\n")
    done = run_tests()
    failures += done.returncode != 0
    report = (
        done.stdout.splitlines()[-1]
        if done.returncode == 0
        else f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
    )
    sys.stdout.write(f"Python tests under address sanitizer: {report}\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
