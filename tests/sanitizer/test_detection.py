"""The detector on the seeded faults: every fault is found, where it is and with its remedy; right programs are silent."""

import pytest
import torch

from tests.sanitizer.faults import Fault
from tests.sanitizer.test_faults import FAULTS, ON_ONE, ON_TWO, name
from torch_accel import sanitizer

ON_ONE_FAULTS = [fault for fault in FAULTS if fault.devices == 1]
ON_TWO_FAULTS = [fault for fault in FAULTS if fault.devices == 2]


def messages(error: BaseException | None) -> list[str]:
    """What was raised, and while what."""
    found = []
    while error is not None:
        found.append(str(error))
        error = error.__cause__ or error.__context__
    return found


def check(fault: Fault, race: sanitizer.Race) -> None:
    """The race is the fault's: names, lines of both stacks, remedy."""
    for access, (operator, mark) in ((race.first, fault.first), (race.second, fault.second)):
        assert access.operator == operator
        lines = [frame.line for frame in access.stack if frame.file == fault.program.__code__.co_filename]
        assert fault.line(mark) in lines
    assert race.remedy == fault.remedy
    assert race.first.access == "write" or race.second.access == "write"


def find(fault: Fault, mode: str) -> tuple[sanitizer.Report, list[str]]:
    """Runs the fault; the report, and what was raised."""
    torch.accel.synchronize()
    sanitizer.report(reset=True)
    raised = None
    with sanitizer.enabled("off"), sanitizer.enabled(mode):
        try:
            fault.faulty()()
        except RuntimeError as error:
            raised = error
        torch.accel.synchronize()
    return sanitizer.report(reset=True), messages(raised)


@pytest.mark.parametrize("fault", ON_ONE_FAULTS, ids=str)
def test_a_fault_raises(fault):
    report, raised = find(fault, "raise")
    check(fault, report[0])
    assert str(report[0]) in raised


@pytest.mark.parametrize("fault", ON_ONE_FAULTS, ids=str)
@pytest.mark.filterwarnings("ignore:accel sanitizer")
def test_a_fault_warns(fault):
    report, raised = find(fault, "warn")
    check(fault, report[0])
    assert not any("sanitizer" in text for text in raised)  # what races may fail otherwise, where a record runs twice


@pytest.mark.parametrize("program", ON_ONE, ids=name)
def test_a_right_program_is_silent(program):
    torch.accel.synchronize()
    sanitizer.report(reset=True)
    with sanitizer.enabled("off"), sanitizer.enabled("raise"):
        assert program() is True
    assert sanitizer.report() == []


def on_two(two_devices, source: str) -> str:
    return two_devices(f"import tests.sanitizer.test_detection as t\nfrom torch_accel import sanitizer\n{source}")


@pytest.mark.parametrize("fault", ON_TWO_FAULTS, ids=str)
def test_a_fault_on_two_devices(fault, two_devices):
    on_two(two_devices, f"t.test_a_fault_raises(t.ON_TWO_FAULTS[{ON_TWO_FAULTS.index(fault)}])")


@pytest.mark.parametrize("program", ON_TWO, ids=name)
def test_a_right_program_on_two_devices_is_silent(program, two_devices):
    on_two(two_devices, f"t.test_a_right_program_is_silent(t.ON_TWO[{ON_TWO.index(program)}])")
