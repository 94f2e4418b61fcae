"""A decoder, a ResNet-18, two LSTM taggers, a recommender: trained on accel as on the CPU, with no wait but item()."""

import pytest

from tests.aten.random_oracle import philox_only
from tests.training.programs import PROGRAMS, watched

CONDITIONS = {
    "plain": {},
    "poisoned memory": {"ACCEL_POISON": "1"},
    "every record twice": {"ACCEL_REPLAY_TWICE": "1"},
    "late launches": {"ACCEL_DELAY_US": "50"},
    "schedule 1": {"ACCEL_SCHEDULE_SEED": "1"},
    "schedule 2": {"ACCEL_SCHEDULE_SEED": "2"},
    "schedule 3": {"ACCEL_SCHEDULE_SEED": "3"},
    "blocking": {"ACCEL_LAUNCH_BLOCKING": "1"},
}
CASES = [pytest.param(name, marks=[] if name == "plain" else pytest.mark.full) for name in CONDITIONS]


@pytest.mark.parametrize("condition", CASES)
def test_losses_are_the_cpus(script, condition):
    # Drawing the CPU's numbers, for dropout. Bit for bit, but for torch's LSTM: on the CPU it is of other operators.
    script(
        """
        import torch
        from tests.training.programs import PROGRAMS, losses
        for threads in (1, 2):
            torch.set_num_threads(threads)
            for name in PROGRAMS:
                steps = 10 if name == "ResNet-18" else 20
                accel, cpu = losses(name, "accel", steps), losses(name, "cpu", steps)
                apart = max(abs(a - b) for a, b in zip(accel, cpu, strict=True))
                assert apart <= (1e-5 if name == "LSTM tagger" else 0), (name, threads, apart)
                assert sum(cpu[-4:]) < 0.95 * sum(cpu[:4]), (name, cpu)  # it learns
        """,
        timeout=400,
        ACCEL_RNG="cpu",
        **CONDITIONS[condition],
    )


@philox_only
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_host_waits_once_an_item(name):
    waits, inside, fallbacks = watched(name, 3)
    assert waits == [{"item": 1}] * 3
    assert inside == {} and fallbacks == {}
