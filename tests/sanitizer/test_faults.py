"""The seeded faults themselves: the right programs are right, and each fault is one statement less."""

import importlib
import inspect

import pytest

from tests.sanitizer.faults import tags

MODULES = [
    importlib.import_module(f"tests.sanitizer.programs.{name}") for name in ("streams", "host", "memory", "training")
]
DEVICES = importlib.import_module("tests.sanitizer.programs.devices")
FAULTS = [fault for module in [*MODULES, DEVICES] for fault in module.FAULTS]
PROGRAMS = list({fault.program: None for fault in FAULTS})
ON_ONE = [program for program in PROGRAMS if program.__module__ != DEVICES.__name__]
ON_TWO = [program for program in PROGRAMS if program.__module__ == DEVICES.__name__]


def name(value):
    return value.__name__


def test_there_are_enough():
    assert len(FAULTS) >= 40 and len(PROGRAMS) >= 15


@pytest.mark.parametrize("program", ON_ONE, ids=name)
def test_a_right_program_computes_the_right_numbers(program):
    assert program() is True


@pytest.mark.parametrize("program", ON_TWO, ids=name)
def test_a_right_program_on_two_devices(program, two_devices):
    said = two_devices(f"""
    from tests.sanitizer.programs.devices import {program.__name__}
    print({program.__name__}())
    """)
    assert said == "True\n"


@pytest.mark.parametrize("program", PROGRAMS, ids=name)
def test_every_marked_statement_is_a_fault_of_the_table(program):
    assert tags(program) == sorted((fault.tag for fault in FAULTS if fault.program is program), key=tags(program).index)


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_is_one_statement_less(fault):
    assert fault.line(fault.first[1]) and fault.line(fault.second[1])
    right, faulty = fault.program.__code__, fault.faulty().__code__
    assert faulty.co_firstlineno == right.co_firstlineno and faulty.co_filename == right.co_filename
    left = {line for _, _, line in right.co_lines()} - {line for _, _, line in faulty.co_lines()}
    tagged = next(
        number
        for number, text in enumerate(inspect.getsource(fault.program).splitlines(), right.co_firstlineno)
        if text.endswith(f"# fault: {fault.tag}")
    )
    # Statements inside functions of the program are in code objects of their own.
    assert left <= set(range(tagged, tagged + 2))
