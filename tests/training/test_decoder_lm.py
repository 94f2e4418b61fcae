"""A decoder LM with AdamW: 50 losses bit-equal to the CPU's, whatever shakes memory, schedule or records."""

import pytest

CONDITIONS = {
    "plain": {},
    "poisoned memory": {"ACCEL_POISON": "1"},
    "every record twice": {"ACCEL_REPLAY_TWICE": "1"},
    "late launches": {"ACCEL_DELAY_US": "200"},
    "schedule 1": {"ACCEL_SCHEDULE_SEED": "1"},
    "schedule 2": {"ACCEL_SCHEDULE_SEED": "2"},
    "schedule 3": {"ACCEL_SCHEDULE_SEED": "3"},
}
#: the others belong to ./dev test --full
ALWAYS = {("plain", 1), ("plain", 2), ("every record twice", 1), ("poisoned memory", 2)}
CASES = [
    pytest.param(name, threads, marks=[] if (name, threads) in ALWAYS else pytest.mark.full)
    for name in CONDITIONS
    for threads in (1, 2)
]


@pytest.mark.parametrize("condition, threads", CASES)
def test_losses_equal_the_cpus(script, condition, threads):
    script(
        f"""
        import torch
        from tests.training.decoder_lm import losses
        torch.set_num_threads({threads})
        accel, cpu = losses("accel"), losses("cpu")
        assert torch.equal(accel, cpu), (accel - cpu).tolist()
        assert cpu[:5].mean() > 3 and cpu[-5:].mean() < 1.5, cpu.tolist()  # it learns: two successors are log(2)
        """,
        timeout=300,
        **CONDITIONS[condition],
    )
