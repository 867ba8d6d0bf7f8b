"""What an estimate writes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from tbmem.analysis.allocator.settings import AllocatorSettings
from tbmem.analysis.estimate import estimate_of
from tbmem.model.gpus import gpu_named
from tbmem.model.job import Job
from tbmem.runtime.estimate_files import name_of, write_estimate
from tbmem.sources.recording import read_recording
from tests.analysis.test_estimate import run


def test_a_recording_and_json(tmp_path: Path) -> None:
    estimate = estimate_of(Job(model="gpt2", batch=8), run(), AllocatorSettings(), gpu_named("t4"))

    recording, figures = write_estimate(tmp_path / "new", estimate, run())

    timeline = read_recording(recording).timeline
    assert timeline.peak(0).bytes == estimate.peak_allocated
    assert timeline.devices[0].total_bytes == gpu_named("t4").total
    assert timeline.about["gpu"] == "t4-16gb"
    assert json.loads(figures.read_text())["peak_reserved"] == estimate.peak_reserved
    assert recording.name == "gpt2_batch8.tbmem.npz"


def test_names_tell_estimates_apart() -> None:
    job = Job(model="package.module:make", world_size=4, fsdp=4, rank=3)

    assert name_of(job) == "make_batch1_rank3"
    assert name_of(replace(job, model="configs/llama/config.json", rank=0)) == "config_batch1_rank0"
