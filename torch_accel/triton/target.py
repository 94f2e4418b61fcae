"""What a kernel is compiled for: sizes and abilities of a core, as one record. ``CPU`` is the host, ``NPU`` a chip that no host is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A kind of core.

    ``lanes``: elements that a vector operation takes at a time. ``spaces``: bytes that a program may have of each memory space; None is
    as much as the device has. ``direct_hbm``: whether lanes may read and write HBM; if not, tiles go through SRAM, by DMA, and only
    the scalar unit reaches HBM by itself. ``mma``: the shapes (M, N, K) of its products; none means any shape. ``queues``: how many DMA
    queues it has.
    """

    name: str
    lanes: int
    spaces: Mapping[str, int | None]
    direct_hbm: bool = True
    mma: tuple[tuple[int, int, int], ...] = ()
    queues: int = 0

    @property
    def sram(self) -> int:
        """Bytes of SRAM that a program may have."""
        return self.spaces["sram"] or 0


CPU = Target("cpu", lanes=16, spaces={"hbm": None, "sram": 2 << 20})
NPU = Target("npu", lanes=16, spaces={"hbm": None, "sram": 1 << 20}, direct_hbm=False, mma=((32, 32, 32),), queues=4)
