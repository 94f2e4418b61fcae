"""The C++ stress test: plain, under the sanitizers, and with faults planted that it must notice."""

import os
import subprocess

import pytest

import build
import sanitize

CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("ACCEL_")}


def stress(program, seconds, seed=1, timeout=60, **environment):
    """(exit code, output) of the stress test; the code is None if it hangs."""
    try:
        done = subprocess.run(
            [str(program), str(seconds), str(seed)],
            capture_output=True,
            text=True,
            env={**CLEAN, **environment},
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("environment", [{}, {"ACCEL_SCHEDULE_SEED": "7"}], ids=["plain", "shaken"])
def test_stress(environment):
    assert stress(build.build_stress(), 3, **environment) == (0, "ok\n")


@pytest.mark.sanitizer
@pytest.mark.parametrize("sanitizer", sanitize.FLAGS)
def test_stress_under_a_sanitizer(sanitizer):
    done = sanitize.run_stress(sanitizer, 6)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@pytest.mark.sanitizer
def test_python_tests_under_the_address_sanitizer():
    done = sanitize.run_tests()
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2, 5))
def test_stress_for_longer(seed):
    assert stress(build.build_stress(), 20, seed, ACCEL_SCHEDULE_SEED=str(seed)) == (0, "ok\n")


# The rule, and the same place without it.
FAULTS = {
    "event waits capture the event, not its recording": (
        "event.cpp",
        {
            "        : wait_on_stream(stream, recording.stream, recording.ticket);": (
                '        : enqueue(stream, make_info("wait_event", accelEngineHost), '
                "WaitLate{recording.stream, event}, nullptr);"
            ),
            'extern "C" accelError_t accelEventCreate(': (
                "struct WaitLate {\n  accelStream_t source;\n  accelEvent_t event;\n"
                "  accelError_t run() const {\n    return WaitEvent{source, event->get().ticket, source->device.resets.load()}.run();\n  }\n};\n\n"
                'extern "C" accelError_t accelEventCreate('
            ),
        },
    ),
    "the worker looks for waiters before it stores the ticket": (
        "wait.cpp",
        {
            "  value_.store(ticket);\n  if (waiters_.load() != 0) {\n": (
                "  const bool waiting = waiters_.load() != 0;\n"
                "  os::futex_wait(signal_, signal_.load(), 20'000);\n"
                "  value_.store(ticket);\n  if (waiting) {\n"
            )
        },
    ),
    "a pageable source is read when the copy runs": (
        "copy.cpp",
        {"from.pageable() ? nullptr : from.host, bytes}": "from.host, bytes}"},
    ),
    "a launch does not wait for its cores": (
        "cores.cpp",
        {"state != kDone;": "state != kDone && patience.spin() && false;"},
    ),
    "a ticket is complete before its launch has run": (
        "worker.cpp",
        {"    delay(stream, ticket);\n": "    delay(stream, ticket);\n    stream.completion.advance(ticket);\n"},
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS)
def test_the_stress_test_notices(fault, tmp_path):
    driver = build.planted_copy(tmp_path, *FAULTS[fault])
    code, output = stress(build.build_stress(driver=driver), 8, timeout=30)
    assert code != 0, output


@pytest.mark.full
def test_the_thread_sanitizer_notices_a_missing_release(tmp_path):
    driver = build.planted_copy(
        tmp_path,
        "wait.cpp",
        {"value_.store(ticket);": "value_.store(ticket, std::memory_order_relaxed);"},
    )
    done = sanitize.run_stress("thread", 6, driver)
    assert "data race" in done.stderr
