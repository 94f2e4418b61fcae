"""The programs that are trained whole, and what is recorded of a run: ``train(name, device, steps)``."""

from __future__ import annotations

import torch

import torch_accel
from tests.training import decoder_lm, recommender, resnet18, tagger
from torch_accel.testing import wait_report
from torch_accel.testing.waits import WaitWatch

PROGRAMS = {
    "decoder LM": decoder_lm.Program,
    "ResNet-18": resnet18.Program,
    "LSTM tagger": tagger.Program,
    "tagger of cells": lambda *arguments: tagger.Program(*arguments, cells=True),
    "recommender": recommender.Program,
}


def losses(name: str, device: str, steps: int) -> list[float]:
    """Trains from the seed 0 and asks for every loss."""
    torch.manual_seed(0)
    program = PROGRAMS[name](device, steps)
    torch.manual_seed(1)  # what came before was drawn on the CPU
    return [program.step(*batch).item() for batch in program.batches]


def watched(name: str, steps: int) -> tuple[list[dict[str, int]], dict[str, int], torch_accel.FallbackReport]:
    """Per step the host waits of the step with its item(); those of all steps without; the operators that fell back."""
    torch.manual_seed(0)
    program = PROGRAMS[name]("accel", steps)
    torch.accel.synchronize()
    torch_accel.fallback_report(reset=True)
    waits, inside = [], {}
    with WaitWatch() as watch:
        for batch in program.batches:
            # The stream is held until something waits: the step is made of launches, all of them unfinished.
            with watch.block() as seen:
                before = wait_report()
                loss = program.step(*batch)
                after = wait_report()
                loss.item()
            inside |= {caller: n for caller, n in after.items() if n != before.get(caller)}
            waits.append(dict(seen))
    return waits, inside, torch_accel.fallback_report()
