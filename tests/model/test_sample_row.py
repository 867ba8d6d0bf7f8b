"""Rows of samples: when one ends, what it keeps, and its line."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from tbmem.model.sample import MemorySample
from tbmem.model.sample_row import ROW_FIELDS, RowBuilder, SampleRow, line_of
from tests.conftest import GIB, MakeSample


def build(samples: Sequence[MemorySample], builder: RowBuilder | None = None) -> SampleRow:
    builder = builder or RowBuilder(10)
    assert builder.add(samples[:-1]) == []
    (row,) = builder.add(samples[-1:]) or builder.close()
    assert builder.close() == []
    return row


def test_a_row_ends_with_a_multiple_of_its_steps(make_sample: MakeSample) -> None:
    # given
    builder = RowBuilder(3)
    # when
    rows = builder.add([make_sample(step, 45.0) for step in range(1, 9)])
    # then
    assert [(row.first_step, row.sample.step, row.count) for row in rows] == [(1, 3, 3), (4, 6, 3)]
    assert [(row.first_step, row.sample.step) for row in builder.close()] == [(7, 8)]
    assert builder.close() == []


def test_slow_steps_do_not_wait_for_others(make_sample: MakeSample) -> None:
    # given steps that take 0.6 s, the first of them three
    builder = RowBuilder(100, began=1000.0)
    samples = [make_sample(step, 45.0, time=1002.4 + 0.6 * step) for step in range(1, 6)]
    # when
    rows = builder.add(samples)
    # then
    assert [(row.first_step, row.sample.step) for row in rows] == [(1, 1), (2, 3), (4, 5)]


def test_a_row_keeps_the_range_of_levels_the_largest_peaks_and_the_last_sample(make_sample: MakeSample) -> None:
    # given
    samples = [
        make_sample(1, 40.0, 50.0, peak_reserved=7, host_peak_rss=1),
        make_sample(2, 30.0, 78.0, peak_reserved=9, host_peak_rss=5),
        make_sample(3, 45.0, 47.0, peak_reserved=8, host_peak_rss=3, alloc_retries=2),
    ]
    # when
    row = build(samples)
    # then
    assert (row.first_step, row.sample.step, row.count) == (1, 3, 3)
    assert (row.allocated_min, row.allocated_max) == (30 * GIB, 45 * GIB)
    assert (row.sample.peak_allocated, row.sample.peak_reserved, row.sample.host_peak_rss) == (78 * GIB, 9, 5)
    assert (row.sample.allocated, row.sample.alloc_retries) == (45 * GIB, 2)


def test_a_row_leaves_nothing_to_the_next(make_sample: MakeSample) -> None:
    # given
    builder = RowBuilder(10)
    build([make_sample(1, 90.0), make_sample(1, 78.0, 79.0, updated=True)], builder)
    # when
    row = build([make_sample(2, 45.0)], builder)
    # then
    assert (row.first_step, row.count, row.allocated_max) == (2, 1, 45 * GIB)
    assert row.sample == make_sample(2, 45.0)


def test_counters_that_are_missing_now_and_then_do_not_hide_the_others(make_sample: MakeSample) -> None:
    # given
    missing = make_sample(2, 45.0)._replace(allocated=None, reserved=None, peak_allocated=None)
    # when
    row = build([make_sample(1, 40.0, 50.0), missing])
    # then
    assert (row.allocated_min, row.allocated_max) == (40 * GIB, 40 * GIB)
    assert row.sample.peak_allocated == 50 * GIB
    # the last reading stands for the one that is missing
    assert (row.sample.allocated, row.sample.reserved) == (40 * GIB, 40 * GIB)


def test_a_row_without_a_reading_of_malloc_has_the_level_of_the_row_before(make_sample: MakeSample) -> None:
    # given
    builder = RowBuilder(10)
    build([make_sample(1, 40.0)], builder)
    # when
    row = build([make_sample(2, 45.0)._replace(allocated=None, reserved=None)], builder)
    # then
    assert (row.allocated_min, row.allocated_max) == (None, None)
    assert (row.sample.step, row.sample.allocated, row.sample.reserved) == (2, 40 * GIB, 40 * GIB)


def test_a_reading_that_is_too_old_is_not_the_level(make_sample: MakeSample) -> None:
    # given a heap in which malloc is read once a minute
    builder = RowBuilder(10)
    first = make_sample(1, 40.0)
    build([first], builder)
    unread = make_sample(2, 45.0)._replace(allocated=None, reserved=None)
    # when
    soon = build([unread._replace(time=first.time + 4)], builder)
    late = build([unread._replace(step=3, time=first.time + 6)], builder)
    # then
    assert soon.sample.allocated == 40 * GIB
    assert (late.sample.allocated, late.sample.reserved) == (None, None)


def test_a_row_says_of_what_step_a_level_is_that_was_read_a_while_before_its_end(make_sample: MakeSample) -> None:
    # given steps of 60 ms of which the first is read
    builder = RowBuilder(3)
    first = make_sample(1, 40.0)
    unread = make_sample(2, 45.0)._replace(allocated=None, reserved=None)
    later = [unread._replace(step=step, time=first.time + 0.06 * (step - 1)) for step in range(2, 7)]
    # when
    soon, after = builder.add([first, later[0], later[1]]), builder.add(later[2:])
    # then both name it, and only the row in which it was read has it as its own
    assert [row.level_step for row in (*soon, *after)] == [1, 1]
    assert [row.as_read.allocated for row in (*soon, *after)] == [40 * GIB, None]
    # a reading at the end, or just before, needs no words
    assert build([first, later[0]]).level_step is None


def test_levels_and_peaks_of_zero_are_values(make_sample: MakeSample) -> None:
    row = build([make_sample(step, 0.0) for step in (1, 2)])
    assert (row.allocated_min, row.allocated_max, row.sample.peak_allocated) == (0, 0, 0)


def test_a_row_ends_where_a_profiler_is_switched_on_or_off(make_sample: MakeSample) -> None:
    # given
    samples = [make_sample(step, 45.0, profiled=4 <= step <= 6) for step in range(1, 11)]
    # when
    rows = RowBuilder(10).add(samples)
    # then
    told = [(row.first_step, row.sample.step, row.count, row.sample.profiled) for row in rows]
    assert told == [(1, 3, 3, False), (4, 6, 3, True), (7, 10, 4, False)]


@pytest.mark.parametrize(
    ("updates", "expected"),
    [((False, True, False), True), ((False, False, False), False), ((None, None, None), None), ((None, True), True)],
)
def test_a_row_with_one_update_is_an_update(
    updates: Sequence[bool | None], expected: bool | None, make_sample: MakeSample
) -> None:
    samples = [make_sample(step, 45.0, updated=updated) for step, updated in enumerate(updates, start=1)]
    assert build(samples).sample.updated is expected


@pytest.mark.parametrize("device", ["cuda:0", 'a "100 %" device\n'])
@pytest.mark.parametrize("updated", [None, True, False])
@pytest.mark.parametrize("profiled", [True, False])
def test_the_line_is_that_of_the_json_encoder(
    profiled: bool, updated: bool | None, device: str, make_sample: MakeSample
) -> None:
    # given
    sample = make_sample(7, 45.0, device=device, profiled=profiled, updated=updated, time=1763687533.25, ooms=0)
    for levels in ((1, 2), (None, None)):
        row = SampleRow(7, 1, *levels, sample)
        # when / then
        known = dict(zip(ROW_FIELDS, row.values, strict=True))
        known = {
            name: value for name, value in known.items() if value is not None and (name, value) != ("profiled", False)
        }
        assert line_of(row) == json.dumps({"type": "samples", **known}, separators=(",", ":"))


# its line


@pytest.mark.parametrize("profiled", [True, False])
@pytest.mark.parametrize("updated", [True, False, None])
@pytest.mark.parametrize("rank", [0, 3])
def test_every_counter_of_a_row_survives(profiled: bool, updated: bool | None, rank: int) -> None:
    # given: all counters different, one of them 0
    sample = MemorySample(
        step=10,
        time=1234.5,
        device="cuda:0",
        rank=rank,
        allocated=1,
        reserved=2,
        peak_allocated=3,
        peak_reserved=4,
        active=5,
        inactive_split=6,
        live_blocks=7,
        alloc_retries=0,
        ooms=9,
        device_used=10,
        device_total=11,
        host_rss=12,
        host_peak_rss=13,
        host_available=14,
        workers_rss=15,
        profiled=profiled,
        updated=updated,
        host_private=16,
        workers_private=17,
        host_heap=18,
        host_own=19,
    )
    row = SampleRow(first_step=1, count=10, allocated_min=0, allocated_max=5, sample=sample)
    # when / then
    assert SampleRow.from_dict(json.loads(line_of(row))) == row


def test_a_counter_that_a_device_does_not_have_is_no_key() -> None:
    # given
    sample = MemorySample(step=1, time=0.0, device="mps", host_rss=5)
    row = SampleRow(first_step=1, count=1, allocated_min=None, allocated_max=None, sample=sample)
    # when
    view = json.loads(line_of(row))
    del view["type"]
    # then
    assert set(view) == {"step", "time", "device", "rank", "host_rss", "first_step", "count"}
    assert SampleRow.from_dict(view) == row


def test_a_row_without_its_step_is_refused(make_sample: MakeSample) -> None:
    view = json.loads(line_of(build([make_sample(10, 45.0)])))
    del view["step"]
    with pytest.raises(ValueError, match="step"):
        SampleRow.from_dict(view)
