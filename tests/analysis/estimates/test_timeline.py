"""A run that was made up by hand becomes a recording like any other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tbmem.analysis.allocator.settings import AllocatorSettings, parse_settings
from tbmem.analysis.allocator.what_if import replay_timeline
from tbmem.analysis.estimates.fit import estimate_from_run, order_events
from tbmem.analysis.estimates.timeline import timeline_of_run
from tbmem.analysis.recordings.analyzer import analyze
from tbmem.estimator.sweep import peak_of_run
from tbmem.model.category import Category, Phase
from tbmem.model.gpus import gpu_named
from tbmem.model.job import Job
from tbmem.model.simulated_run import SimulatedRun
from tbmem.model.stacks import Frame
from tbmem.model.timeline import load_timeline, save_timeline
from tbmem.units import MIB
from tests.analysis.estimates.test_fit import run

LINE = Frame("model.py", 12, "forward")


def with_lines() -> SimulatedRun:
    made = run()
    return replace(made, stack=np.array([-1, 0, 0, -1, -1, -1]), stacks=((LINE,),))


@pytest.mark.parametrize("text", ["", "expandable_segments:True"])
def test_peaks_are_those_of_the_estimate(text: str) -> None:
    settings = parse_settings(text)
    estimate = estimate_from_run(Job(model="gpt2"), run(), settings, gpu_named("t4"))

    timeline = timeline_of_run(run(), settings, total=16 << 30)

    reserved = timeline.peak_reserved(0)
    assert reserved is not None
    assert reserved.bytes == estimate.peak_reserved
    assert timeline.peak(0).bytes == estimate.peak_allocated == 450 * MIB


@pytest.mark.parametrize("text", ["", "expandable_segments:True", "max_split_size_mb:64"])
def test_the_recording_can_be_replayed(text: str) -> None:
    settings = parse_settings(text)
    timeline = timeline_of_run(run(), settings)

    again = replay_timeline(timeline, settings)

    reserved = timeline.peak_reserved(0)
    assert reserved is not None
    assert again.allocator.peak_reserved == reserved.bytes


def test_a_file_of_it_is_analysed_like_a_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "x.tbmem.npz"
    save_timeline(timeline_of_run(with_lines(), AllocatorSettings(), about={"model": "made up"}), path)

    analysis = analyze(load_timeline(path), name="x")

    assert analysis.source == "estimate"
    device = analysis.main
    assert device.name == "cuda:0"
    assert {share.name: share.bytes // MIB for share in device.by_category if share.bytes} == {
        "OPTIMIZER_STATE": 200,
        "PARAMETER": 100,
        "GRADIENT": 100,
        "TEMPORARY": 50,
    }
    assert device.peak.phase == "OPTIMIZER"
    assert {one.line for one in device.top} == {"", "model.py:12 forward"}
    assert device.reserved_bytes == 500 * MIB
    assert analysis.notes[0] == "something was assumed."


def test_without_an_allocator_there_are_no_segments() -> None:
    made = replace(run(), about={**run().about, "device": "cpu"})

    timeline = timeline_of_run(made, source="count")

    assert (timeline.source, timeline.devices[0].name, len(timeline.segments)) == ("count", "cpu", 0)
    assert timeline.peak(0).bytes == 450 * MIB


def test_the_steady_peak_is_that_of_the_last_step() -> None:
    rows = np.array(
        [
            # size, born, died, step, phase, category
            (10, 0, -1, -1, Phase.SETUP, Category.PARAMETER),
            (100, 1, 2, 0, Phase.FORWARD, Category.TEMPORARY),
            (30, 4, 5, 1, Phase.FORWARD, Category.TEMPORARY),
        ],
        dtype=np.int64,
    )
    made = SimulatedRun(
        **{name: rows[:, place] for place, name in enumerate(("size", "alloc_event", "free_event", "step", "phase"))},
        category=rows[:, 5],
        module=np.full(3, -1),
        stream=np.zeros(3, dtype=np.int64),
        stack=np.full(3, -1),
        operator=np.zeros(3, dtype=np.int64),
        operators=("aten::empty",),
        about={"step_starts": [1, 3], "backward_starts": []},
    )

    peak = peak_of_run(made)

    assert peak.allocated == 40
    assert peak.parts == {"temporary": 30, "parameter": 10}
    assert [one.bytes for one in peak.largest] == [30]
    # event 3 does not exist: numbers that the run leaves out are closed
    assert order_events(made).alloc_index.tolist() == [0, 1, 3]
