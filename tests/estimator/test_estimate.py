"""What would make it fit is estimated as well; the runs are made up."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tbmem
from tbmem.analysis.allocator.settings import AllocatorSettings
from tbmem.analysis.estimates.fit import Estimate, Fit, estimate_from_run
from tbmem.errors import UsageError
from tbmem.estimator import estimate as module
from tbmem.estimator.estimate import estimate_job, file_stem, write_estimate
from tbmem.model.category import Category, Phase
from tbmem.model.gpus import gpu_named
from tbmem.model.job import Job
from tbmem.model.simulated_run import SimulatedRun
from tbmem.sources.recording import read_recording
from tbmem.units import GIB
from tests.analysis.estimates.test_fit import run as a_run

JOB = Job(model="gpt2", batch=8)


def run_of(job: Job) -> SimulatedRun:
    """10 GiB of states and 1 GiB of activations a sample; half of these with checkpointing."""
    activations = job.batch * GIB // (2 if job.checkpoint else 1)
    table = np.array(
        [
            (10 * GIB, 0, -1, -1, Phase.SETUP, Category.PARAMETER),
            (activations, 1, 2, 0, Phase.FORWARD, Category.ACTIVATION),
        ],
        dtype=np.int64,
    )
    return SimulatedRun(
        size=table[:, 0],
        alloc_event=table[:, 1],
        free_event=table[:, 2],
        step=table[:, 3],
        phase=table[:, 4],
        category=table[:, 5],
        module=np.array([-1, -1]),
        stream=np.array([0, 0]),
        stack=np.array([-1, -1]),
        operator=np.array([0, 0]),
        operators=("aten::empty",),
        about={"step_starts": [1], "backward_starts": []},
    )


def execute(jobs: Sequence[Job]) -> list[SimulatedRun | UsageError]:
    return [UsageError("no") if job.world_size > 1 else run_of(job) for job in jobs]


@pytest.fixture
def estimate(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Estimate]:
    """Estimates a job whose runs are made up."""

    def estimated(
        job: Job,
        gpu: str = "h100-80gb",
        alternatives: bool | None = False,
        execute: Callable[[Sequence[Job]], list[SimulatedRun | UsageError]] = execute,
    ) -> Estimate:
        monkeypatch.setattr(module, "simulate_jobs", execute)
        return estimate_job(job, gpu, alternatives=alternatives)[0]

    return estimated


def test_without_alternatives_one_job_is_executed(estimate: Callable[..., Estimate]) -> None:
    result = estimate(JOB, "a100-40gb")

    assert result.fit is Fit.FITS
    assert result.peak_reserved == 18 * GIB
    assert result.alternatives == ()


def test_a_job_that_cannot_be_executed_is_an_error(estimate: Callable[..., Estimate]) -> None:
    with pytest.raises(UsageError, match="no"):
        estimate(replace(JOB, world_size=2, fsdp=2))


def test_alternatives_come_by_themselves_where_it_does_not_fit(estimate: Callable[..., Estimate]) -> None:
    small = estimate(JOB, "a100-40gb", alternatives=None)
    large = estimate(replace(JOB, batch=40), "a100-40gb", alternatives=None)

    assert small.alternatives == ()
    assert large.alternatives


def test_segments_that_grow_are_an_alternative_where_they_save_memory(estimate: Callable[..., Estimate]) -> None:
    # given: ever larger blocks, of which each finds the segments of those before too small
    count = 10
    numbers = np.arange(count)
    growing = replace(
        run_of(JOB),
        size=(numbers + 1) * GIB,
        alloc_event=2 * numbers,
        free_event=2 * numbers + 1,
        **{name: np.zeros(count, np.int64) for name in ("step", "phase", "stream", "operator")},
        category=np.full(count, Category.ACTIVATION),
        **{name: np.full(count, -1) for name in ("module", "stack")},
    )
    # when
    result = estimate(JOB, "a100-40gb", True, lambda jobs: [growing] * len(jobs))
    constant = estimate(JOB, "a100-40gb", True)
    # then
    first = result.alternatives[0]
    assert first.change == "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    assert (result.peak_reserved, first.reserved, first.fit) == (55 * GIB, 10 * GIB, Fit.FITS)
    assert not any("expandable" in each.change for each in constant.alternatives)


@pytest.mark.usefixtures("estimate")
def test_options_are_those_of_the_command_and_what_is_not_given_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "simulate_jobs", lambda jobs: [run_of(job) for job in jobs])

    job = tbmem.estimate("gpt2", gpu="a100-40gb", pp=2, fsdp=2, ddp=2, seq=64, clip=None).job

    assert (job.world_size, job.replicate, job.pipeline, job.batch, job.sequence) == (8, 2, 2, 4, 64)
    assert Job.of("gpt2", fsdp=2, world_size=8).replicate == 4
    with pytest.raises(UsageError, match="option is 'sequence'; there are batch, seq, "):
        Job.of("gpt2", sequence=64)


def test_of_several_gpus_each_has_its_own_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "simulate_jobs", lambda jobs: [run_of(job) for job in jobs])

    result, _ = estimate_job(JOB, ["a100-40gb", "t4", "a100-40gb"])

    assert [(each.gpu, each.fit) for each in result.gpus] == [("a100-40gb", Fit.FITS), ("t4-16gb", Fit.NO)]
    assert result.gpus[0] == result.as_fit
    assert result.gpus[1].headroom < 0


def test_a_recording_and_json(tmp_path: Path) -> None:
    made = estimate_from_run(Job(model="gpt2", batch=8), a_run(), AllocatorSettings(), gpu_named("t4"))

    recording, figures = write_estimate(tmp_path / "new", made, a_run())

    timeline = read_recording(recording).timeline
    assert timeline.peak(0).bytes == made.peak_allocated
    assert timeline.devices[0].total_bytes == gpu_named("t4").total
    assert timeline.about["gpu"] == "t4-16gb"
    assert json.loads(figures.read_text())["peak_reserved"] == made.peak_reserved
    assert recording.name == "gpt2_batch8.tbmem.npz"


def test_names_tell_estimates_apart() -> None:
    job = Job(model="package.module:make", world_size=4, fsdp=4, rank=3)

    assert file_stem(job) == "make_batch1_rank3"
    assert file_stem(replace(job, model="configs/llama/config.json", rank=0)) == "config_batch1_rank0"
