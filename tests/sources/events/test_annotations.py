"""Steps and phases of allocations, by ranges and stacks."""

from __future__ import annotations

import pytest

from tbmem.analysis.recordings.analyzer import analyze
from tbmem.model.category import Phase
from tbmem.present.exports.memory_viz import memory_viz_pickle
from tbmem.sources.snapshot.reader import timeline_of_snapshot
from tests.sources.snapshot.snapshots import Snapshot, block, event, segment, snapshot


def test_annotations_become_ranges_steps_and_phases() -> None:
    def mark(stage: str, name: str, time_us: int) -> Snapshot:
        return {"stage": stage, "name": name, "device": 0, "time_us": time_us}

    annotations = [
        mark("START", "ProfilerStep#4", 0),
        mark("START", "Optimizer.step#SGD.step", 20),
        mark("END", "Optimizer.step#SGD.step", 30),
        mark("END", "ProfilerStep#4", 40),
        mark("START", "never ended", 50),
    ]
    trace = [event("alloc", 0, 500, 10), event("alloc", 512, 300, 25), event("alloc", 1024, 200, 45)]
    blocks = [block(512, 500), block(512, 300), block(512, 200)]

    timeline = timeline_of_snapshot(snapshot(segment(0, *blocks), trace=trace, external_annotations=annotations))

    assert timeline.rows.step.tolist() == [4, 4, -1]
    assert timeline.rows.phase.tolist() == [Phase.OTHER, Phase.OPTIMIZER, Phase.OTHER]
    assert timeline.range_names == ("ProfilerStep#4", "Optimizer.step#SGD.step", "never ended")
    assert timeline.ranges.end_ns.tolist() == [40_000, 30_000, -1]


def test_a_range_with_an_empty_name_has_that_name() -> None:
    # given what torch.profiler.record_function("") leaves behind the optimizer's range
    annotations = [
        {"stage": stage, "name": name, "device": 0, "time_us": at}
        for name, begin, end in (("", 0, 20), ("Optimizer.step#A.step", 30, 40))
        for stage, at in (("START", begin), ("END", end))
    ]
    trace = [event("alloc", 0, 500, 10), event("alloc", 512, 500, 50)]

    timeline = timeline_of_snapshot(
        snapshot(segment(0, *[block(512, 500)] * 2), trace=trace, external_annotations=annotations)
    )

    assert [timeline.range_names[number] for number in timeline.ranges.name.tolist()] == ["", "Optimizer.step#A.step"]
    # and its end is not taken for one of the optimizer's
    assert timeline.rows.step.tolist() == [0, 1]
    assert memory_viz_pickle(analyze(timeline))


def test_steps_without_names_are_counted_by_the_first_optimizer() -> None:
    names = ["Optimizer.step#A.step", "Optimizer.step#B.step"] * 2
    annotations = [
        {"stage": stage, "name": name, "device": 0, "time_us": 10 * place + (stage == "END")}
        for place, name in enumerate(names)
        for stage in ("START", "END")
    ]
    trace = [event("alloc", 512 * place, 500, 10 * place + 5) for place in range(4)]

    timeline = timeline_of_snapshot(
        snapshot(segment(0, *[block(512, 500)] * 4), trace=trace, external_annotations=annotations)
    )

    assert timeline.rows.step.tolist() == [1, 1, 2, 2]
    assert any("counted from 0" in note for note in timeline.notes)


@pytest.mark.parametrize(
    ("frames", "phase"),
    [
        ([("torch/nn/modules/module.py", "_call_impl")], Phase.FORWARD),
        (
            [("torch/nn/modules/module.py", "_call_impl"), ("torch/autograd/graph.py", "_engine_run_backward")],
            Phase.BACKWARD,
        ),
        ([("engine.cpp", "torch::autograd::Engine::thread_main(x)")], Phase.BACKWARD),
        ([("C:\\lib\\torch\\optim\\adam.py", "step")], Phase.OPTIMIZER),
        ([("transformer.py", "forward")], Phase.FORWARD),
        ([("train.py", "main")], Phase.OTHER),
    ],
)
def test_stacks_tell_the_phase(frames: list[tuple[str, str]], phase: Phase) -> None:
    stack = [{"filename": file, "name": name, "line": 1} for file, name in frames]
    trace = [{**event("alloc", 0, 500), "frames": stack}]

    timeline = timeline_of_snapshot(snapshot(segment(0, block(512, 500)), trace=trace))

    assert timeline.rows.phase.tolist() == [phase]


def test_with_python_stacks_only_a_thread_without_python_is_autograds() -> None:
    trace = [event("alloc", 0, 500), {**event("alloc", 512, 300), "frames": []}]

    timeline = timeline_of_snapshot(snapshot(segment(0, block(512, 500), block(512, 300)), trace=trace))

    assert timeline.rows.phase.tolist() == [Phase.OTHER, Phase.BACKWARD]
