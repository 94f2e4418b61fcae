"""The oracle and the C++ header of Philox agree with Random123, and round correctly."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.aten.random_oracle import philox_only, rounds

ROOT = Path(__file__).resolve().parents[2]

pytestmark = philox_only


def test_oracle_known_answers() -> None:
    """Random123's known answers for philox4x32-10."""
    zeros = [np.zeros(1, np.uint64)] * 4
    ones = [np.full(1, 0xFFFFFFFF, np.uint64)] * 4
    pi = [np.full(1, x, np.uint64) for x in (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)]
    words = [
        " ".join(f"{int(x[0]):08x}" for x in rounds(c, k0, k1))
        for c, k0, k1 in ((zeros, 0, 0), (ones, 0xFFFFFFFF, 0xFFFFFFFF), (pi, 0xA4093822, 0x299F31D0))
    ]
    assert words == [
        "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
        "408f276d 41c83b0e a20bc7c6 6d5451fd",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ]


@pytest.mark.parametrize("stride", [1009, pytest.param(1, marks=pytest.mark.full)])
def test_philox_header(stride: int, tmp_path: Path) -> None:
    """Logarithm and cosine are correctly rounded for every uniform there is."""
    binary = tmp_path / "philox"
    source = ROOT / "tests/aten/philox_exhaustive.cpp"
    subprocess.run(
        [
            os.environ.get("CXX", "g++"),
            "-std=c++20",
            "-O3",
            "-ffp-contract=off",
            f"-I{ROOT / 'csrc'}",
            source,
            "-o",
            binary,
        ],
        check=True,
    )
    output = subprocess.run([binary, str(stride)], check=True, capture_output=True, text=True).stdout
    assert "0 logarithms and 0 cosines not correctly rounded" in output
    assert output.splitlines()[1:] == ["6627e8d5 e169c58d bc57ac4c 9b00dbd8", "408f276d 41c83b0e a20bc7c6 6d5451fd"]
