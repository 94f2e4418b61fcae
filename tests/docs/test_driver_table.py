"""docs/architecture.md maps every function of the chip's headers to its counterpart in CUDA's driver API."""

import re

from tests.docs.markdown import ROOT, first_cells


def test_every_function_is_in_the_table():
    names = ("accel.h", "accel_graph.h", "accel_grid.h", "accel_ipc.h", "accel_trace.h")
    headers = "".join((ROOT / "csrc/driver" / name).read_text() for name in names)
    declared = re.findall(r"^ACCEL_API [\w\s*]+?[\s*](accel\w+)\(", headers, flags=re.M)
    assert len(declared) > 40
    table = [name for name in first_cells(ROOT / "docs/architecture.md") if name.startswith("accel")]
    assert sorted(table) == sorted(declared)
