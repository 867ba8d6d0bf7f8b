"""Pictures of recordings of every kind: that they are there, how large, and what is in them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tbmem.analysis.recordings.analyzer import analyze
from tbmem.model.timeline_tables import DeviceTotals
from tbmem.offline.analyze import analyze as analyze_file
from tbmem.present.figures.figures import PICTURES, equal_allocations, write_pictures
from tests.analysis.timelines import recording, training_step
from tests.offline.snapshots import write_snapshot
from tests.present.figures.pngs import size_of_png


def test_all_pictures_of_a_snapshot(tmp_path: Path) -> None:
    path = write_snapshot(tmp_path / "rank0.pickle", sizes=[3 << 20, 1 << 20, 1000])

    paths = write_pictures(analyze_file(path), tmp_path)

    assert sorted(one.name for one in paths) == sorted(PICTURES)
    for one in paths:
        width, height = size_of_png(one)
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
    assert all(size_of_png(path)[0] > 1000 for path in paths)


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

    assert all(size_of_png(path)[0] > 1000 for path in paths)


def test_equal_allocations_are_one_bar() -> None:
    # given 21 weights of equal layers, and one that is larger than each of them
    layers = [{"bytes": 100, "begin": 0, "name": f"layers.{number}.weight"} for number in range(21)]
    analysis = analyze(recording(*layers, {"bytes": 900, "begin": 1, "name": "head"}))

    first, second = equal_allocations(analysis, analysis.main)

    assert (first.times, first.bytes, first.name) == (21, 2100, "layers.*.weight")
    assert (second.times, second.bytes, second.name) == (1, 900, "head")
