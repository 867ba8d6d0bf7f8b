"""Recurrent layers take what cuDNN takes; the sizes were seen with torch 2.14 on an A100 that is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tbmem.estimator.worker import simulate_jobs
from tbmem.model.category import Category
from tbmem.model.gpus import gpu_named
from tbmem.model.job import Job
from tbmem.model.simulated_run import SimulatedRun

PROJECT = Path(__file__).parents[3]
SAMPLES, STEPS, INPUTS, HIDDEN = 8, 64, 128, 256


class Layers(nn.Module):
    """Two recurrent layers over a batch whose samples come first."""

    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.layers = kind(INPUTS, HIDDEN, 2, batch_first=True, **options)

    def forward(self, steps: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(steps)[0]
        return result


def make(kind: type[nn.RNNBase], **options: Any) -> Any:
    return Layers(kind, **options), (torch.zeros(SAMPLES, STEPS, INPUTS),), lambda output, _: output.sum()


def lstm() -> Any:
    return make(nn.LSTM)


def gru() -> Any:
    return make(nn.GRU, dropout=0.1, bidirectional=True)


def run_of(name: str, **options: Any) -> SimulatedRun:
    """Two steps of a factory of this file."""
    job = Job(model=f"{__name__}:{name}", search_path=str(PROJECT), **options).on(gpu_named("a100-80gb"))
    (run,) = simulate_jobs([job])
    assert isinstance(run, SimulatedRun), run
    return run


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        # four gates, a cell and an output for each of two layers
        ("lstm", SAMPLES * STEPS * (5 * HIDDEN + HIDDEN) * 2 * 4),
        # three gates and an output, in two layers of two directions
        ("gru", SAMPLES * STEPS * (3 * HIDDEN + HIDDEN) * 4 * 4),
    ],
)
def test_a_layer_keeps_one_reserve_for_the_backward_pass(name: str, kept: int) -> None:
    # when
    run = run_of(name)
    # then there is one in each step, freed in the backward pass, and no memory of single cells
    reserves = run.size == kept
    assert list(run.step[reserves & (run.category == Category.ACTIVATION)]) == [0, 1]
    assert (run.free_event[reserves] > 0).all()
    assert not any("cell" in operator for operator in run.operators)


def test_weights_and_their_gradients_are_one_block_each() -> None:
    # given
    weights = sum(parameter.numel() for parameter in nn.LSTM(INPUTS, HIDDEN, 2).parameters()) * 4
    # when
    run = run_of("lstm")
    # then
    assert run.size[(run.category == Category.PARAMETER) & (run.free_event < 0)].tolist() == [weights]
    assert run.size[(run.category == Category.GRADIENT)].tolist() == [weights] * 2


def test_random_numbers_of_dropout_are_kept_from_step_to_step() -> None:
    # when
    run = run_of("gru")
    # then there are those of 1,024 generators of 48 bytes on each of 108 multiprocessors
    generators = run.size == 108 * 1024 * 48
    assert run.free_event[generators].tolist() == [-1]


def test_autocast_casts_all_weights_into_one_block() -> None:
    # given
    weights = sum(parameter.numel() for parameter in nn.LSTM(INPUTS, HIDDEN, 2).parameters())
    # when
    run = run_of("lstm", amp="bfloat16")
    # then
    assert (run.size == weights * 2).sum() == 2 * 2  # weights and their gradients in two steps


def test_nothing_is_kept_without_training() -> None:
    run = run_of("lstm", inference=True)

    assert run.size.max() < SAMPLES * STEPS * 6 * HIDDEN * 2 * 4
