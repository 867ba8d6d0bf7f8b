"""An estimate and a measurement as the page lays them over each other."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tbmem.analysis.allocator.settings import AllocatorSettings
from tbmem.analysis.estimates.fit import estimate_from_run
from tbmem.analysis.estimates.timeline import timeline_of_run
from tbmem.model.gpus import gpu_named
from tbmem.model.job import Job
from tbmem.present.text.estimate import estimate_view
from tbmem.present.views.prediction import measured_view, prediction_view, variant_view
from tbmem.units import MIB
from tests.analysis.estimates.test_fit import run
from tests.analysis.timelines import recording, training_step
from tests.present.views.recordings import two_steps, view_of

JOB = Job(model="gpt2", batch=8, checkpoint=True, fsdp=2, world_size=2)
ESTIMATE = estimate_from_run(JOB, run(), AllocatorSettings(), gpu_named("t4"))
TIMELINE = timeline_of_run(run(), AllocatorSettings())


def figures(**more: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps({**estimate_view(ESTIMATE), **more}))
    return found


def test_a_variant_has_the_figures_of_its_estimate_and_curves_of_its_steps() -> None:
    view = variant_view(ESTIMATE, TIMELINE)

    assert (view["batch"], view["checkpoint"], view["settings"]) == (8, True, "")
    assert view["peak"] == TIMELINE.peak(0).bytes == 450 * MIB
    assert view["range"][0] < view["peak"] < view["range"][1]
    assert (view["fit"], view["peak_reserved"]) == ("fits", ESTIMATE.peak_reserved)
    phases = view["steps"]["steady"]
    assert [phase["phase"] for phase in phases] == ["FORWARD", "BACKWARD", "OPTIMIZER"]
    assert max(phase["peak"] for phase in phases) == view["peak"]
    assert max(phases[2]["reserved"]) <= ESTIMATE.peak_reserved


def test_an_estimate_without_variants_is_its_only_one_and_names_the_command_that_makes_more() -> None:
    view = prediction_view("est", "x.tbmem.npz", view_of(TIMELINE), figures())

    (only,) = view["variants"]
    assert (view["base"], only["batch"], only["range"]) == (0, 8, variant_view(ESTIMATE, TIMELINE)["range"])
    assert view["command"] == (
        "tbmem estimate gpt2 --batch 8 --checkpoint --world-size 2 --fsdp 2 --gpu t4-16gb --variants --out LOGDIR/est"
    )
    assert view["notes"] == ["something was assumed"]


def test_a_batch_of_the_factorys_own_is_no_option_of_the_command() -> None:
    own = figures(job={**figures()["job"], "batch": 1, "own_batch": True})

    assert "--batch" not in prediction_view("est", "x.tbmem.npz", view_of(TIMELINE), own)["command"]


def test_of_several_variants_the_one_that_was_asked_for_is_shown_first() -> None:
    other = variant_view(replace(ESTIMATE, job=replace(JOB, batch=16)), TIMELINE)

    view = prediction_view("est", "x", None, figures(variants=[other, variant_view(ESTIMATE, TIMELINE)]))

    assert (view["base"], view["command"], len(view["variants"])) == (1, None, 2)


def test_figures_without_a_recording_and_a_recording_without_figures() -> None:
    alone = prediction_view(".", "x.estimate.json", None, figures())
    bare = prediction_view("a", "x.tbmem.npz", view_of(TIMELINE), None)

    assert (alone["variants"], alone["base"], alone["peak"]) == ([], None, ESTIMATE.peak_allocated)
    assert alone["command"].endswith("--out LOGDIR")
    assert (bare["variants"][0]["range"], bare["peak"]) == (None, None)
    assert bare["command"] == "tbmem estimate MODEL --batch 1 --variants --out LOGDIR/a"


def test_measured_steps_are_one_unit_wide_and_their_phases_equally_wide() -> None:
    view = measured_view(two_steps())

    assert [step["source"] for step in view["steps"]] == ["steady", "steady"]
    assert view["steps"][1]["spans"] == [["FORWARD", 1.0, 1.5], ["BACKWARD", 1.5, 2.0]]
    assert view["by_phase"] == {"FORWARD": 1130, "BACKWARD": 1546}
    assert view["peak"] == max(view["bytes"]) == 1546
    assert view["bytes"][view["x"].index(view["peak_x"])] == view["peak"]
    assert view["x"] == sorted(view["x"])


def test_of_many_steps_six_around_the_peak_are_shown() -> None:
    rows = [row for step in range(20) for row in training_step(step, 10 * step)]
    peak = {"bytes": 10_000, "begin": 155, "end": 156, "step": 15}

    view = measured_view(view_of(recording(*rows, peak)))

    assert [step["step"] for step in view["steps"]] == [12, 13, 14, 15, 16, 17]
    assert 3 < view["peak_x"] < 4


def test_a_recording_without_steps_is_one_unit_wide() -> None:
    view = measured_view(view_of(recording({"bytes": 8, "begin": 0}, {"bytes": 9, "begin": 1})))

    assert (view["steps"], view["by_phase"]) == ([], {})
    assert (min(view["x"]), max(view["x"]) <= 1) == (0, True)
