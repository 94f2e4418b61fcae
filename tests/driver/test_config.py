"""The ACCEL_* variables: what they do, and what a wrong value says."""

import os

import pytest
from expecttest import assert_expected_inline

CATCH = """
for call in (d.device_count, d.init):
    try:
        call()
    except d.Error as error:
        print(*error.args, sep=": ")
"""


def message(process, **environment):
    """The text of both device_count() and init(), which must agree."""
    done = process(CATCH, **environment)
    assert done.stderr == ""
    first, second = done.stdout.splitlines()
    assert first == second
    return first


def test_devices(process):
    assert_expected_inline(
        message(process, ACCEL_DEVICES="two"),
        """Config: accel: ACCEL_DEVICES=two is not usable; accepted: an integer from 0 to 64 (the number of devices; unset: 1, 0: none)""",
    )
    assert "ACCEL_DEVICES=65" in message(process, ACCEL_DEVICES="65")
    assert "ACCEL_DEVICES=-1" in message(process, ACCEL_DEVICES="-1")


def test_visible_devices(process):
    assert_expected_inline(
        message(process, ACCEL_DEVICES="4", ACCEL_VISIBLE_DEVICES="0,4"),
        """Config: accel: ACCEL_VISIBLE_DEVICES=0,4 is not usable; accepted: different indices below ACCEL_DEVICES (4), separated by commas; empty: none""",
    )
    for wrong in ("0,0", "0,", ",", "a", "-1"):
        assert "VISIBLE_DEVICES=" in message(process, ACCEL_DEVICES="4", ACCEL_VISIBLE_DEVICES=wrong)


@pytest.mark.skipif("DRIVER_SANITIZER" in os.environ, reason="sanitizers leave room for smaller windows: another text")
def test_memory(process):
    assert_expected_inline(
        message(process, ACCEL_MEMORY="64MB"),
        """Config: accel: ACCEL_MEMORY=64MB is not usable; accepted: bytes per device from 2MiB to 1048576MiB, as 67108864, 64MiB or 2GiB (unset: half of the host's memory over all devices)""",
    )
    for wrong in ("1024", "2TiB", "lots", "1.5GiB", "-5", "99999999999999T"):
        assert f"ACCEL_MEMORY={wrong} " in message(process, ACCEL_MEMORY=wrong)


def test_switches(process):
    assert_expected_inline(
        message(process, ACCEL_LAUNCH_BLOCKING="yes"),
        """Config: accel: ACCEL_LAUNCH_BLOCKING=yes is not usable; accepted: 0, or 1 (every launch waits and raises its error)""",
    )
    assert_expected_inline(
        message(process, ACCEL_DELAY_US="1ms"),
        """Config: accel: ACCEL_DELAY_US=1ms is not usable; accepted: an integer from 0 to 1000000000 (microseconds before each launch runs)""",
    )
    assert_expected_inline(
        message(process, ACCEL_SCHEDULE_SEED="x"),
        """Config: accel: ACCEL_SCHEDULE_SEED=x is not usable; accepted: an integer from 0 to 9223372036854775807 (seed of random delays before launches)""",
    )


def test_cores(process):
    assert_expected_inline(
        message(process, ACCEL_CORES="0"),
        """Config: accel: ACCEL_CORES=0 is not usable; accepted: an integer from 1 to 1024 (cores of a device; unset: the host's)""",
    )
    assert "ACCEL_CORES=1025 " in message(process, ACCEL_CORES="1025")
    assert_expected_inline(
        message(process, ACCEL_SRAM="2GiB"),
        """Config: accel: ACCEL_SRAM=2GiB is not usable; accepted: bytes of scratch memory per core from 4KiB to 1GiB, as 1048576, 256KiB or 1MiB (unset: 2MiB)""",
    )
    for wrong in ("4095", "much", "-1"):
        assert f"ACCEL_SRAM={wrong} " in message(process, ACCEL_SRAM=wrong)
    assert_expected_inline(
        message(process, ACCEL_WATCHDOG_S="soon"),
        """Config: accel: ACCEL_WATCHDOG_S=soon is not usable; accepted: an integer from 0 to 1000000000 (seconds that a loop of a kernel may wait while no program ends; 0: any number)""",
    )
    source = "d.init(); p = d.properties(0); print(p['cores'], p['sram_per_core'])"
    assert process(source, ACCEL_CORES="7", ACCEL_SRAM="64KiB").stdout == "7 65536\n"
    assert process(source).stdout == f"{len(os.sched_getaffinity(0))} {2 << 20}\n"


@pytest.mark.parametrize(
    ("environment", "devices"),
    [
        ({}, 1),
        ({"ACCEL_DEVICES": ""}, 1),
        ({"ACCEL_DEVICES": "0"}, 0),
        ({"ACCEL_DEVICES": "3"}, 3),
        ({"ACCEL_DEVICES": "4", "ACCEL_VISIBLE_DEVICES": "3,1"}, 2),
        ({"ACCEL_DEVICES": "4", "ACCEL_VISIBLE_DEVICES": ""}, 0),
    ],
)
def test_device_count(process, environment, devices):
    done = process(
        "print(d.device_count(), d.is_initialized()); d.init(); print(d.device_count(), d.is_initialized())",
        **environment,
    )
    assert done.stdout == f"{devices} False\n{devices} True\n"


@pytest.mark.parametrize(
    ("value", "mebibytes"),
    [("64MiB", 64), ("1G", 1024), ("2GiB", 2048), ("4195000", 4), ("4096K", 4), ("8388608B", 8)],
)
def test_memory_sizes(process, value, mebibytes):
    done = process("d.init(); print(d.mem_info(0)[1] >> 20)", ACCEL_MEMORY=value)
    assert done.stdout == f"{mebibytes}\n"


def test_default_memory_is_shared_fairly(process):
    source = "d.init(); print(d.properties(0)['total_memory'])"
    whole = int(process(source, ACCEL_MEMORY="").stdout)
    shared = int(process(source, ACCEL_MEMORY="", ACCEL_DEVICES="2", LOCAL_WORLD_SIZE="4").stdout)
    assert whole % (2 << 20) == shared % (2 << 20) == 0
    assert abs(whole / 8 - shared) <= 2 << 20


def test_a_repaired_environment_is_read_again(process):
    done = process(
        """
        import os
        try:
            d.init()
        except d.Error as error:
            print(error.args[0])
        os.environ["ACCEL_DEVICES"] = "2"
        d.init()
        os.environ["ACCEL_DEVICES"] = "bad again, and too late to matter"
        print(d.device_count())
        """,
        ACCEL_DEVICES="bad",
    )
    assert done.stdout == "Config\n2\n"


def test_calls_before_init(process):
    done = process(
        """
        for call in (lambda: d.malloc(0, 1), d.Stream, d.Event, lambda: d.arena(0)):
            try:
                call()
            except d.Error as error:
                print(*error.args)
        """
    )
    assert done.stdout == "NotSupported accel: accelInit must be called first\n" * 4
