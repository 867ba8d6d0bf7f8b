"""Allocations that were made up by hand become an estimate."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tbmem.analysis.allocator.settings import AllocatorSettings
from tbmem.analysis.estimates.fit import Estimate, Fit, estimate_from_run, layer_pattern
from tbmem.model.category import Category, Phase
from tbmem.model.gpus import gpu_named
from tbmem.model.job import Job
from tbmem.model.simulated_run import SimulatedRun
from tbmem.units import GIB, MIB

ROWS = [
    # size, born, died, step, phase, category, module
    (100 * MIB, 0, -1, -1, Phase.SETUP, Category.PARAMETER, 0),
    (40 * MIB, 1, 4, 0, Phase.FORWARD, Category.ACTIVATION, 1),
    (100 * MIB, 2, 9, 0, Phase.BACKWARD, Category.GRADIENT, 0),
    (10 * MIB, 3, 5, 0, Phase.BACKWARD, Category.AUTOGRAD_DETAIL, -1),
    (200 * MIB, 6, -1, 0, Phase.OPTIMIZER, Category.OPTIMIZER_STATE, 0),
    (50 * MIB, 7, 8, 0, Phase.OPTIMIZER, Category.TEMPORARY, -1),
]


IN_PIECES = [
    # of two blocks in each segment of 20 MiB one is freed; then come blocks that are larger
    *((8 * MIB, index, -1 if index % 2 else 20, 0, Phase.FORWARD, Category.ACTIVATION, 0) for index in range(20)),
    *((12 * MIB, index, -1, 0, Phase.BACKWARD, Category.GRADIENT, 0) for index in range(30, 38)),
]


def run(rows: list[tuple[int, ...]] = ROWS) -> SimulatedRun:
    table = np.array(rows, dtype=np.int64)
    return SimulatedRun(
        size=table[:, 0],
        alloc_event=table[:, 1],
        free_event=table[:, 2],
        step=table[:, 3],
        phase=table[:, 4],
        category=table[:, 5],
        module=table[:, 6],
        stream=np.zeros(len(table), dtype=np.int64),
        stack=np.full(len(table), -1),
        operator=np.zeros(len(table), dtype=np.int64),
        modules=("layers.0.up", "layers.1.up"),
        operators=("aten::empty",),
        notes=("something was assumed",),
        about={"step_starts": [1], "backward_starts": [2], "parameters": 7},
    )


def judged(total: int = 2 * GIB, job: Job | None = None, rows: list[tuple[int, ...]] = ROWS) -> Estimate:
    gpu = replace(gpu_named("h100-80gb"), name="tiny", total=total, context=100 * MIB)
    return estimate_from_run(job or Job(model="gpt2"), run(rows), AllocatorSettings(), gpu)


def test_the_band_is_that_of_what_was_measured() -> None:
    alone, copies, shards = (
        judged(job=Job(model="gpt2", world_size=world, replicate=copies, fsdp=shards))
        for world, copies, shards in ((1, 1, 1), (2, 2, 1), (2, 1, 2))
    )

    assert alone.allocated_range == copies.allocated_range == (int(450 * MIB * 0.99), int(450 * MIB * 1.01))
    assert shards.allocated_range == (int(450 * MIB * 0.96), int(450 * MIB * 1.08))
    assert shards.reserved_range == (int(500 * MIB * 0.96), int(500 * MIB * 1.08))


def test_a_compiled_training_may_need_less() -> None:
    # given a run whose torch.compile was left out
    made = run()
    compiled = replace(made, about={**made.about, "compiled": True})
    gpu = replace(gpu_named("h100-80gb"), name="tiny", total=2 * GIB, context=100 * MIB)
    # when
    found = estimate_from_run(Job(model="gpt2"), compiled, AllocatorSettings(), gpu)
    # then
    assert found.allocated_range == (int(450 * MIB * 0.82), int(450 * MIB * 1.01))


def test_the_peak_and_what_it_is_made_of() -> None:
    estimate = judged()

    # of the first three segments one, of 40 MiB, is too small for what comes later
    assert (estimate.peak_allocated, estimate.peak_reserved) == (450 * MIB, 500 * MIB)
    assert (estimate.peak_step, estimate.peak_phase) == (0, "optimizer")
    assert estimate.by_category == {
        "optimizer_state": 200 * MIB,
        "parameter": 100 * MIB,
        "gradient": 100 * MIB,
        "temporary": 50 * MIB,
    }
    assert estimate.by_module == {"layers.*.up": 400 * MIB, "(outside of modules)": 50 * MIB}
    assert estimate.by_phase == {"forward": 140 * MIB, "backward": 250 * MIB, "optimizer": 450 * MIB}


def test_the_formula_has_this_models_numbers() -> None:
    formula = judged().formula

    assert formula.total == (100 + 200 + max(100 + 50, 40)) * MIB


@pytest.mark.parametrize(
    ("total", "fit", "words"),
    [
        (2 * GIB, Fit.FITS, "It fits"),
        (605 * MIB, Fit.TIGHT, "It is tight: 600.00 MiB are needed, 615.00 MiB at most, and .* has 605.00 MiB"),
        (595 * MIB, Fit.TIGHT, "It is tight: 600.00 MiB are needed and .*; cached memory will have to be released"),
        (400 * MIB, Fit.NO, "It does not fit: 600.00 MiB .* Tensors alone take 450.00 MiB .*, and 300.00 MiB are left"),
    ],
)
def test_the_verdict(total: int, fit: Fit, words: str) -> None:
    estimate = judged(total)

    assert estimate.fit is fit
    assert re.match(words, estimate.sentence)


def test_where_tensors_would_fit_it_says_where_the_allocator_stops() -> None:
    estimate = judged(330 * MIB, rows=IN_PIECES)

    assert estimate.peak_allocated == 176 * MIB
    assert re.match("It does not fit: .* 12.00 MiB could not be allocated: .* but in pieces", estimate.sentence)


def test_layers_that_are_alike_are_one() -> None:
    assert layer_pattern("layers.11.attention.0") == "layers.*.attention.*"
    assert layer_pattern("block2.conv1") == "block2.conv1"
