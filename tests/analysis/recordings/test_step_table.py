"""Durations of phases, and allocated and freed bytes, of recorded steps."""

from __future__ import annotations

from dataclasses import replace

from tbmem.analysis.recordings.step_table import recorded_steps
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import RangeKind, RangeRows
from tests.analysis.plots.test_folded_steps import MIB, training
from tests.analysis.timelines import recording


def _timed(timeline: AllocationTimeline, **ranges: list[int]) -> AllocationTimeline:
    """The recording with an event each 10 ns, from 1000 on."""
    rows = timeline.rows
    ns = {name: 1000 + 10 * getattr(rows, f"{name}_event") for name in ("alloc", "free")}
    free = ns["free"].copy()
    free[rows.free_event < 0] = -1
    timeline = timeline.with_columns(alloc_ns=ns["alloc"], free_ns=free)
    count = len(ranges.get("kind", []))
    return replace(timeline, ranges=RangeRows.of(count, **ranges)) if count else timeline


def test_phases_last_from_their_first_allocation_to_that_of_the_next() -> None:
    # given: forward from event 0, backward from 2, the optimizer from 6, the next step from 10
    timeline = _timed(recording(*training(1, 0), *training(2, 10)))
    # when
    first, last = recorded_steps(timeline, 0)
    # then
    assert (first.step, first.ns) == (1, 100)
    assert (first.forward_ns, first.backward_ns, first.optimizer_ns, first.other_ns) == (20, 40, 40, 0)
    # and the last one ends with its last event
    assert (last.ns, last.optimizer_ns) == (90, 30)


def test_ranges_of_the_profiler_are_exact() -> None:
    # given a step that began before its first allocation, and an optimizer that allocates nothing at its beginning
    kind = [RangeKind.STEP, RangeKind.OPTIMIZER]
    timeline = _timed(recording(*training(7, 0)), kind=kind, begin_ns=[980, 1050], end_ns=[1120, 1100], step=[7, -1])
    # when
    (step,) = recorded_steps(timeline, 0)
    # then
    assert step.ns == 140
    assert (step.forward_ns, step.backward_ns, step.optimizer_ns, step.other_ns) == (20, 30, 50, 40)


def test_what_a_step_allocates_and_frees() -> None:
    # given a step that keeps 4 MiB, after one whose 7 MiB are freed in it
    older = {"bytes": 7 * MIB, "begin": -1, "end": 5}
    timeline = _timed(recording(older, *training(1, 0, kept=4), *training(2, 10)))
    # when
    first, second = recorded_steps(timeline, 0)
    # then
    assert (first.allocated_bytes, first.freed_bytes) == (154 * MIB, 157 * MIB)
    assert (second.allocated_bytes, second.freed_bytes) == (150 * MIB, 150 * MIB)


def test_a_recording_without_times_has_bytes_only() -> None:
    timeline = recording(*training(1, 0), *training(2, 10)).with_columns(alloc_ns=-1, free_ns=-1)

    first, _ = recorded_steps(timeline, 0)

    assert (first.ns, first.forward_ns, first.other_ns) == (-1, -1, -1)
    assert first.allocated_bytes == 150 * MIB


def test_no_steps_no_table() -> None:
    assert recorded_steps(recording({"bytes": 1, "begin": 0}), 0) == ()
