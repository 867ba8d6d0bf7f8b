"""Bands, and what has none, make the layers and the curve: at every moment, for every range, in one order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tbmem.analysis.plots.allocation_bands import Bands, bands_of, brush
from tbmem.analysis.plots.stacked_series import Layers, layers_of
from tbmem.analysis.recordings.analyzer import analyze
from tbmem.analysis.recordings.result import Analysis
from tbmem.model.category import Category
from tests.analysis.timelines import recording

CATEGORIES = [Category.PARAMETER, Category.ACTIVATION, Category.GRADIENT, Category.UNKNOWN]


def made_up(seed: int, count: int = 400, events: int = 3000) -> Analysis:
    """Allocations of all sizes and lifetimes; some are older than the recording, some stay, some are listed nowhere."""
    random = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for begin, end in random.permutation(events)[: 2 * count].reshape(-1, 2).tolist():
        size = int(2 ** random.uniform(0, 30))
        row = {"bytes": size, "address": len(rows), "category": CATEGORIES[len(rows) % len(CATEGORIES)]}
        lives = [{"begin": min(begin, end), "end": max(begin, end)}, {"begin": begin}, {"end": end}, {}]
        rows.append(row | lives[int(random.choice(4, p=[0.85, 0.05, 0.05, 0.05]))])
    before = sum(row["bytes"] for row in rows if "begin" not in row)
    return analyze(recording(*rows, device={"events": events, "unlisted_bytes": 7000, "base_bytes": before + 7000}))


def shown(
    analysis: Analysis, largest: int, between: tuple[int, int] | None = None, intervals: int = 50
) -> tuple[Layers, Bands]:
    layers = layers_of(analysis, 0, intervals=intervals, between=between)
    return layers, bands_of(analysis, 0, layers, largest, between)


def rest_of(analysis: Analysis, layers: Layers, bands: Bands) -> Any:
    """Bytes without a band, by layer and moment."""
    rest = layers.bytes.copy()
    for row, layer, first, last in zip(*bands[:4], strict=True):
        rest[layer, first:last] -= analysis.timeline.rows.bytes[row]
    return rest


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("largest", [0, 3, 50, 10_000])
def test_bands_and_rest_are_the_curve_at_every_moment_of_every_range(seed: int, largest: int) -> None:
    analysis = made_up(seed)
    curve = analysis.timeline.curve(0)
    random = np.random.default_rng(seed)
    ranges = [None, *(tuple(np.sort(random.integers(-1, 3000, 2)).tolist()) for _ in range(10)), (2998, 2999)]

    for between in ranges:
        layers, bands = shown(analysis, largest, between)

        # then layers, and bands within each of them, are what was allocated
        assert layers.total.tolist() == curve.bytes[np.searchsorted(curve.event, layers.event, "right") - 1].tolist()
        assert layers.bytes.sum(axis=0).tolist() == layers.total.tolist()
        rest = rest_of(analysis, layers, bands)
        assert rest.min() >= 0
        # and a band is there exactly while its allocation is
        rows, event = analysis.timeline.rows.take(bands.row), layers.event[None, :]
        free = np.where(rows.free_event < 0, 1 << 60, rows.free_event)[:, None]
        moment = np.arange(len(layers.event))[None, :]
        drawn = (bands.first[:, None] <= moment) & (moment < bands.last[:, None])
        assert np.array_equal(drawn, (rows.alloc_event[:, None] <= event) & (event < free))
        # and all of them together leave nothing but what is listed nowhere
        if largest >= bands.alive:
            assert np.array_equal(rest, np.repeat(layers.unlisted[:, None], rest.shape[1], axis=1))


@pytest.mark.parametrize("seed", range(4))
def test_the_order_does_not_depend_on_what_is_shown(seed: int) -> None:
    analysis = made_up(seed)
    layers, bands = shown(analysis, 10_000, intervals=10_000)
    place = {row: at for at, row in enumerate(bands.row.tolist())}
    random = np.random.default_rng(seed)

    for largest in (20, 100):
        between = tuple(np.sort(random.integers(-1, 3000, 2)).tolist())
        some, few = shown(analysis, largest, between)

        assert [name for name in layers.names if name in some.names] == list(some.names)
        found = [place[row] for row in few.row.tolist() if row in place]
        assert found == sorted(found)
        of_all = dict(zip(bands.row.tolist(), (layers.names[at] for at in bands.layer), strict=True))
        for row, layer in zip(few.row.tolist(), few.layer.tolist(), strict=True):
            assert of_all.get(row, some.names[layer]) == some.names[layer]


def test_bands_reach_from_before_the_range_to_its_end() -> None:
    # given nothing but a short allocation at 30 happens between 20 and 60
    rows = [{"bytes": 50, "begin": 1, "end": 70}, {"bytes": 9, "begin": 30, "end": 31}, {"bytes": 70}]
    analysis = analyze(recording(*rows))

    layers, bands = shown(analysis, 10, between=(20, 60))

    assert layers.event.tolist() == [1, 30, 31]
    assert bands.row.tolist() == [2, 0, 1]
    assert bands.first.tolist() == [0, 0, 1]
    assert bands.last.tolist() == [3, 3, 2]


def test_those_with_the_largest_area_are_kept_and_all_are_counted() -> None:
    rows = [{"bytes": 10 * number, "begin": number, "end": number + 20} for number in range(1, 11)]
    rows += [{"bytes": 50, "begin": 0, "end": 40}]

    _, bands = shown(analyze(recording(*rows)), 3)

    assert bands.row.tolist() == [10, 8, 9]
    assert bands.alive == 11


def test_as_many_bands_as_are_asked_for() -> None:
    # given bands that all sink again and again
    rows = [{"bytes": 1000 + at, "begin": at, "end": 5000 + at} for at in range(4000)]

    _, bands = shown(analyze(recording(*rows)), 3000, intervals=1000)

    assert len(bands.row) == 3000


def test_a_brushed_stretch() -> None:
    timeline = recording(
        {"bytes": 1, "begin": 0, "end": 9},
        {"bytes": 2, "begin": 1, "end": 4},
        {"bytes": 4, "begin": 3, "end": 5},
        {"bytes": 8, "begin": 6},
        {"bytes": 16},
    )

    found = brush(timeline, 0, 2, 6)

    assert found.allocated.tolist() == [2, 3]
    assert found.freed.tolist() == [1, 2]
    assert found.alive.tolist() == [3]
    assert found.throughout.tolist() == [0, 4]
