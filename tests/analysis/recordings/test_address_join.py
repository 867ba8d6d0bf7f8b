"""Allocations are what the notes say that were taken while they were alive."""

from __future__ import annotations

import numpy as np
import pytest

from tbmem.analysis.recordings.address_join import join_book
from tbmem.analysis.recordings.analyzer import analyze
from tbmem.model.address_book import AddressBook, StorageNote
from tbmem.model.category import Basis, Category
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import RangeRows
from tests.analysis.timelines import book, ns, recording


def _told(timeline: AllocationTimeline) -> list[tuple[str, str]]:
    rows = timeline.rows
    names = [timeline.names[name] if name >= 0 else "" for name in rows.name.tolist()]
    return [(Category(number).name, name) for number, name in zip(rows.category.tolist(), names, strict=True)]


def test_an_address_that_is_used_again_is_told_apart_by_lifetime() -> None:
    # given an address that a gradient had, and then an activation
    timeline = recording(
        {"bytes": 400, "address": 7, "begin": 0, "end": 2}, {"bytes": 300, "address": 7, "begin": 3, "end": 5}
    )
    notes = book((1, 7, 400, Category.GRADIENT, "w"), (4, 7, 300, Category.ACTIVATION, "layer"))

    joined = join_book(timeline, notes)

    assert _told(joined) == [("GRADIENT", "w"), ("ACTIVATION", "layer")]
    assert joined.rows.basis.tolist() == [Basis.KNOWN, Basis.KNOWN]
    # and nothing was added
    assert joined.devices == timeline.devices


def test_of_several_notes_the_one_that_tells_most_wins() -> None:
    timeline = recording({"bytes": 400, "address": 7, "begin": 0})
    notes = book((1, 7, 400, Category.ACTIVATION, "layer"), (2, 7, 400, Category.PARAMETER, "w"))

    assert _told(join_book(timeline, notes)) == [("PARAMETER", "w")]


@pytest.mark.parametrize(
    "note",
    [
        (3, 7, 400, Category.ACTIVATION, "after it was freed"),
        (1, 8, 400, Category.ACTIVATION, "elsewhere"),
        (1, 7, 401, Category.ACTIVATION, "larger than the allocation"),
    ],
)
def test_notes_that_do_not_fit_say_nothing(note: tuple[float, int, int, Category, str]) -> None:
    timeline = recording({"bytes": 400, "address": 7, "begin": 0, "end": 2})

    joined = join_book(timeline, book(note))

    assert _told(joined) == [("UNKNOWN", "")]
    assert joined.rows.basis.tolist() == [Basis.NONE]


def test_notes_of_another_device_say_nothing() -> None:
    timeline = recording({"bytes": 400, "address": 7, "begin": 0})

    joined = join_book(timeline, book((1, 7, 400, Category.ACTIVATION, "layer"), device="cuda:0"))

    assert _told(joined) == [("UNKNOWN", "")]


def test_what_a_trace_of_the_cpu_does_not_have_is_added() -> None:
    # given a parameter that is older than the recording, of which a trace has no event
    timeline = recording(
        {"bytes": 300, "address": 9, "begin": 0, "end": 1}, device={"allocated_bytes": 0, "reported_peak_bytes": 300}
    )
    notes = book((-1, 7, 400, Category.PARAMETER, "w"), (2, 7, 400, Category.PARAMETER, "w"))

    joined = join_book(timeline, notes)

    # then it has a row, and the curve begins at its bytes
    assert _told(joined) == [("UNKNOWN", ""), ("PARAMETER", "w")]
    assert (joined.rows.alloc_event[1], joined.rows.free_event[1]) == (-1, -1)
    device = joined.devices[0]
    assert (device.base_bytes, device.allocated_bytes, device.reported_peak_bytes) == (400, 400, 700)
    assert joined.peak(0).bytes == 700


def test_bytes_that_had_no_row_are_not_counted_twice() -> None:
    # given a GPU whose totals count the parameters already, rounded
    device = {"name": "cuda:0", "type": 1, "index": 0, "measure": "rounded", "base_bytes": 2048, "unlisted_bytes": 2048}
    timeline = recording({"bytes": 512, "address": 9, "begin": 0, "end": 1}, device=device)

    joined = join_book(timeline, book((-1, 7, 700, Category.PARAMETER, "w"), device="cuda:0"))

    assert joined.rows.bytes.tolist() == [512, 1024]
    assert (joined.devices[0].base_bytes, joined.devices[0].unlisted_bytes) == (2048, 1024)


def test_a_snapshot_has_rows_for_everything_already() -> None:
    timeline = recording({"bytes": 300, "address": 9, "begin": 0, "end": 1}, source="snapshot")

    joined = join_book(timeline, book((-1, 7, 400, Category.PARAMETER, "mapped from a file")))

    assert len(joined.rows) == 1
    assert joined.devices == timeline.devices


def test_an_older_gradient_goes_when_its_address_or_its_name_moves() -> None:
    # given gradients from before, whose frees a trace of the CPU does not have
    rows = [{"bytes": 50, "address": 90 + at, "begin": 2 * at, "end": 2 * at + 1} for at in range(5)]
    timeline = recording(*rows, {"bytes": 400, "address": 7, "begin": 10, "end": 12})
    # when one name is seen elsewhere later, and the address of another is given away
    notes = book(
        (-1, 8, 400, Category.GRADIENT, "a"),
        (-1, 7, 300, Category.GRADIENT, "b"),
        (2.5, 91, 50, Category.GRADIENT, "other"),
        (6.5, 93, 50, Category.GRADIENT, "a"),
    )

    joined = join_book(timeline, notes)

    # then each ended at the first allocation from there on
    added = dict(zip(joined.rows.address.tolist(), joined.rows.free_event.tolist(), strict=True))
    assert added[8] == 8
    assert sorted(joined.rows.free_event[joined.rows.alloc_event < 0].tolist()) == [8, 10]
    assert int(joined.curve(0).bytes[-1]) == 0


def test_an_older_gradient_goes_when_the_optimizer_lets_go_of_it() -> None:
    # given a step that begins with zero_grad
    rows = [{"bytes": 50, "address": 90 + at, "begin": 2 * at, "end": 2 * at + 1} for at in range(5)]
    ranges = RangeRows.of(1, name=0, begin_ns=ns(1), end_ns=ns(1.5))
    timeline = recording(*rows, ranges=ranges, range_names=("Optimizer.zero_grad#SGD.zero_grad",))
    notes = book(
        (-1, 8, 400, Category.GRADIENT, "gone"),
        (-1, 10, 300, Category.GRADIENT, "kept"),
        (9, 10, 300, Category.GRADIENT, "kept"),
        (-1, 11, 70, Category.PARAMETER, "w"),
    )

    joined = join_book(timeline, notes)

    added = dict(zip(joined.rows.bytes.tolist(), joined.rows.free_event.tolist(), strict=True))
    assert (added[400], added[300], added[70]) == (2, -1, -1)


def test_an_address_that_was_given_out_before_is_no_older_storage() -> None:
    # given a note that came a moment after the free: clocks differ a little
    timeline = recording({"bytes": 400, "address": 7, "begin": 0, "end": 2})

    joined = join_book(timeline, book((2.5, 7, 400, Category.GRADIENT, "w")))

    assert len(joined.rows) == 1


def test_state_that_lies_on_another_device_is_counted_there() -> None:
    # given a snapshot of a GPU, and an optimizer whose state lies on the CPU
    device = {"name": "cuda:0", "type": 1, "index": 0}
    timeline = recording({"bytes": 400, "address": 7, "begin": 0}, source="snapshot", device=device)
    notes = AddressBook.from_notes(
        [
            StorageNote(ns(1), "cuda:0", 7, 400, Category.PARAMETER, "w"),
            StorageNote(ns(1), "cpu", 9, 1000, Category.OPTIMIZER_STATE, "w.exp_avg"),
            StorageNote(ns(1), "cpu", 11, 50, Category.ACTIVATION, "layer"),
        ]
    )

    analysis = analyze(timeline, book=notes)

    # then each device has its own
    found = {device.name: {one.name: one.bytes for one in device.by_category} for device in analysis.devices}
    assert found == {"cuda:0": {"PARAMETER": 400}, "cpu": {"OPTIMIZER_STATE": 1000}}
    assert (analysis.main.name, analysis.devices[1].peak.bytes) == ("cuda:0", 1000)
    assert any("cpu: the recording has no events of it" in note for note in analysis.notes)


def test_an_empty_recording_and_an_empty_book() -> None:
    assert len(join_book(recording(), book()).rows) == 0
    assert len(join_book(recording(), book((0, 7, 8, Category.PARAMETER, "w"))).rows) == 1
    assert not np.any(join_book(recording({"bytes": 1, "begin": 0}), book()).rows.category)
