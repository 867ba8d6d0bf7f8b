"""Pictures of recordings of every kind: that they are there, how large, and what is in them."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from tbmem.analysis.plots.stacked_series import layers_of
from tbmem.analysis.recordings.analyzer import analyze
from tbmem.analysis.runs.run_report import series_of
from tbmem.model.category import Category
from tbmem.model.monitor_log import MonitorLog, SampleRow
from tbmem.model.timeline_tables import DeviceTotals
from tbmem.offline.analyze import analyze as analyze_file
from tbmem.present.figures.figures import PICTURES, write_pictures
from tbmem.present.figures.series import draw_series
from tbmem.present.figures.timeline import axis_of, spans
from tbmem.present.labels import unit_for
from tests.analysis.timelines import book, recording, training_step
from tests.conftest import GIB, MakeSample
from tests.offline.snapshots import write_snapshot


def _size(path: Path) -> tuple[int, int]:
    """Width and height of a PNG, in dots."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def test_all_pictures_of_a_snapshot(tmp_path: Path) -> None:
    path = write_snapshot(tmp_path / "rank0.pickle", sizes=[3 << 20, 1 << 20, 1000])

    paths = write_pictures(analyze_file(path), tmp_path)

    assert sorted(one.name for one in paths) == sorted(PICTURES)
    for one in paths:
        width, height = _size(one)
        assert 1400 <= width <= 1600
        assert 450 <= height <= 1300


def test_each_device_that_is_worth_it_has_pictures(tmp_path: Path) -> None:
    rows = [
        {"bytes": 5000, "begin": 0, "device": 1},
        {"bytes": 300, "begin": 0, "device": 0},
        {"bytes": 4, "begin": 0, "device": 2},
    ]
    names = (("cpu", -1), ("cuda:0", 0), ("cuda:1", 1))
    totals = tuple(DeviceTotals(name=name, type=int(index >= 0), index=index, events=1) for name, index in names)

    paths = write_pictures(analyze(replace(recording(*rows), devices=totals)), tmp_path)

    # then the main device's lie at the top, and those of a device with next to nothing nowhere
    assert {str(path.parent.relative_to(tmp_path)) for path in paths} == {".", "cpu"}
    assert all(_size(path)[0] > 1000 for path in paths)


@pytest.mark.parametrize(
    "rows",
    [
        training_step(0, 0) + training_step(1, 10),
        [{"bytes": 100, "address": 1}],
        [{"bytes": 5, "begin": 0}],
        [{"bytes": 0, "begin": 0}],
        [{"bytes": 1 << 40, "begin": 0, "operator": "名前 $x_1^2$ \x07", "module": "a$b"}],
    ],
    ids=["training", "before only", "one", "nothing", "odd names"],
)
def test_recordings_of_every_kind_have_pictures(rows: list[dict[str, object]], tmp_path: Path) -> None:
    paths = write_pictures(analyze(recording(*rows), name="x" * 200), tmp_path)

    assert all(_size(path)[0] > 1000 for path in paths)


def test_a_long_pause_is_drawn_by_events() -> None:
    rows = training_step(0, 0) + training_step(1, 10)
    even = layers_of(analyze(recording(*rows), book=book((-1, 7, 8, Category.PARAMETER, "w"))), 0)
    assert axis_of(even)[1] == "time since the recording began, µs"
    assert even.ns is not None
    # given the same with a pause of an hour in the middle
    paused = even._replace(ns=even.ns + 3_600 * 10**9 * (even.event > 9))
    assert axis_of(paused)[1].startswith("event of the allocator")
    assert axis_of(even._replace(ns=None))[1].startswith("event of the allocator")


def test_units() -> None:
    assert unit_for(3 * GIB).name == "GiB"
    assert unit_for(100).name == "B"


def test_short_spans_become_part_of_the_one_before() -> None:
    import numpy as np

    merged = spans(np.array([1, 1, 2, 1, 3]), np.array([0.0, 5, 10, 10.1, 20]), least=1)

    assert [(span.begin, span.end, span.value) for span in merged] == [(0, 20, 1)]


def test_the_picture_of_a_run(make_sample: MakeSample, tmp_path: Path) -> None:
    rows = [SampleRow(step, 1, GIB, GIB, make_sample(step, step)) for step in range(1, 30)]
    series = series_of([MonitorLog(rows=rows)])

    draw_series("a", series, (), [{"number": 1, "first_step": 4, "last_step": 6}], tmp_path / "a.png")

    assert _size(tmp_path / "a.png")[0] == 1440
