"""The allocation timeline: what was alive when, the peak, selection, the file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tbmem.errors import FileFormatError
from tbmem.model.category import Basis, Category
from tbmem.model.stacks import Frame, StackBuilder
from tbmem.model.timeline import AllocationTimeline, load_timeline, save_timeline
from tbmem.model.timeline_tables import (
    ALIVE,
    BEFORE,
    LOST,
    AllocationRows,
    BlockRows,
    DeviceTotals,
    ReservationRows,
    SegmentRows,
)


def _timeline() -> AllocationTimeline:
    """Two devices; on the first 100 bytes are older than the recording, and 7 have no row."""
    builder = StackBuilder()
    stacks = [
        builder.stack([builder.frame("a.py", line, "f"), builder.frame("main.py", 1, "<module>")]) for line in (3, 4)
    ]
    rows = AllocationRows.of(
        5,
        bytes=[100, 40, 60, 5, 8],
        device=[0, 0, 0, 0, 1],
        alloc_event=[BEFORE, 0, 2, 3, 0],
        free_event=[4, 1, ALIVE, LOST, ALIVE],
        alloc_ns=[-1, 1000, 3000, 4000, 500],
        free_ns=[5000, 2000, -1, -1, -1],
        stack=[-1, stacks[0], stacks[1], stacks[0], -1],
        name=[-1, 0, -1, -1, -1],
    )
    return AllocationTimeline(
        source="snapshot",
        rows=rows,
        devices=(
            DeviceTotals(
                name="cuda:0", type=1, index=0, events=5, base_bytes=107, unlisted_bytes=7, base_reserved_bytes=200
            ),
            DeviceTotals(name="cuda:1", type=1, index=1, events=1),
        ),
        segments=SegmentRows.of(1, bytes=256),
        blocks=BlockRows.of(2, bytes=[60, 196], row=[2, -1]),
        reservations=ReservationRows.of(1, event=2, bytes=56),
        stacks=builder.table(),
        names=("weight",),
        pools=((0, 0),),
        settings={"expandable_segments": False},
        notes=("Something is not known.",),
        about={"file": "x.pickle"},
    )


def test_the_curve_begins_with_what_was_there_before() -> None:
    curve = _timeline().curve(0)

    assert curve.event.tolist() == [-1, 0, 1, 2, 3, 4]
    assert curve.bytes.tolist() == [107, 147, 107, 167, 172, 72]
    assert curve.ns.tolist() == [-1, 1000, 2000, 3000, 4000, 5000]


def test_the_peak_and_what_was_alive_there_agree() -> None:
    timeline = _timeline()

    peak = timeline.peak(0)

    assert peak == (172, 3, 4000)
    alive = timeline.alive_at(0, peak.event)
    assert alive.tolist() == [0, 2, 3]
    assert timeline.rows.bytes[alive].sum() + timeline.devices[0].unlisted_bytes == peak.bytes


def test_a_curve_that_never_rises_has_its_peak_at_the_beginning() -> None:
    timeline = replace(_timeline(), rows=_timeline().rows.take(np.array([0])))

    assert timeline.peak(0) == (107, -1, -1)


def test_devices_are_told_apart() -> None:
    timeline = _timeline()

    assert timeline.peak(1) == (8, 0, 500)
    assert timeline.device_number("cuda:1") == 1
    with pytest.raises(KeyError):
        timeline.device_number("cuda:2")


def test_what_is_alive_at_an_event_and_at_the_end() -> None:
    timeline = _timeline()

    assert timeline.alive_at_end(0).tolist() == [2, 3]
    assert timeline.alive_at(0, -1).tolist() == [0]


def test_reserved_memory_has_a_curve_of_its_own() -> None:
    timeline = _timeline()

    assert timeline.reserved_curve(0).bytes.tolist() == [200, 256]
    assert timeline.peak_reserved(0) == (256, 2, -1)
    assert timeline.peak_reserved(1) is None


def test_categories_are_put_in_place() -> None:
    timeline = _timeline().with_columns(
        names=("a", "b"), category=[Category.PARAMETER] * 5, basis=Basis.KNOWN, name=[1, 0, 0, 0, 0]
    )

    assert set(timeline.rows.category.tolist()) == {Category.PARAMETER}
    assert timeline.names[timeline.rows.name[0]] == "b"


def test_older_rows_take_the_place_of_unlisted_bytes_and_what_exceeds_them_raises_the_curve() -> None:
    older = AllocationRows.of(2, bytes=[10, 3], device=[0, 1], category=Category.PARAMETER)

    timeline = _timeline().with_older_rows(older)

    assert [(one.base_bytes, one.unlisted_bytes) for one in timeline.devices] == [(110, 0), (3, 0)]
    assert timeline.rows.bytes[timeline.alive_at(0, 3)].sum() == timeline.peak(0).bytes == 175
    assert timeline.peak(1).bytes == 11


def test_rows_have_call_stacks() -> None:
    timeline = _timeline()

    assert timeline.frames(1) == timeline.frames(3) == (Frame("a.py", 3, "f"), Frame("main.py", 1, "<module>"))
    assert timeline.frames(0) == ()


def test_an_empty_timeline_is_one(tmp_path: Path) -> None:
    timeline = AllocationTimeline(source="trace", rows=AllocationRows.of(), devices=())

    save_timeline(timeline, tmp_path / "t.npz")

    assert len(load_timeline(tmp_path / "t.npz")) == 0


def test_a_file_gives_back_everything(tmp_path: Path) -> None:
    timeline, path = _timeline(), tmp_path / "one.tbmem.npz"

    save_timeline(timeline, path)
    again = load_timeline(path)

    for table in ("rows", "segments", "blocks", "reservations", "marks", "ranges"):
        stored, given = getattr(again, table).columns(), getattr(timeline, table).columns()
        assert all(
            np.array_equal(stored[name], given[name]) and stored[name].dtype == given[name].dtype for name in given
        )
    assert (
        replace(again, **{name: getattr(timeline, name) for name in ("rows", "segments", "blocks")}).devices
        == timeline.devices
    )
    assert again.frames(1) == timeline.frames(1)
    assert (again.names, again.pools, again.notes) == (timeline.names, timeline.pools, timeline.notes)
    assert (again.settings, again.about, again.source) == (timeline.settings, timeline.about, "snapshot")


@pytest.mark.parametrize(
    "change",
    [
        {"device": [0, 0, 0, 0, 2]},
        {"device": [-1, 0, 0, 0, 0]},
        {"stack": [9, 0, 0, 0, 0]},
        {"name": [0, 0, 0, 1, 0]},
        {"alloc_event": [5, 0, 0, 0, 0]},
    ],
)
def test_rows_that_point_outside_are_refused(tmp_path: Path, change: dict[str, list[int]]) -> None:
    save_timeline(_timeline().with_columns(**change), tmp_path / "t.npz")

    with pytest.raises(FileFormatError, match=r"t\.npz: "):
        load_timeline(tmp_path / "t.npz")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and no more", b"not a zip"])
def test_a_damaged_file_is_one_clear_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t.npz").write_bytes(content)

    with pytest.raises(FileFormatError, match="not an allocation timeline"):
        load_timeline(tmp_path / "t.npz")


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    header = np.frombuffer(json.dumps({"kind": "allocation_timeline", "schema": 99}).encode(), np.uint8)
    np.savez(tmp_path / "t.npz", header=header)

    with pytest.raises(FileFormatError, match="schema 99"):
        load_timeline(tmp_path / "t.npz")


def test_a_million_rows_take_no_loop() -> None:
    import time

    # given a million allocations, each freed ten events later
    count = 1_000_000
    rows = AllocationRows.of(
        count,
        bytes=64,
        alloc_event=np.arange(count) * 2,
        free_event=np.minimum(np.arange(count) * 2 + 11, 2 * count - 1),
    )
    timeline = AllocationTimeline(
        source="snapshot", rows=rows, devices=(DeviceTotals(name="cuda:0", type=1, index=0, events=2 * count),)
    )

    # when the peak and what was alive there are asked for
    began = time.process_time()
    peak = timeline.peak(0)
    alive = timeline.alive_at(0, peak.event)

    # then it takes a fraction of a second
    assert peak.bytes == rows.bytes[alive].sum()
    assert time.process_time() - began < 2
