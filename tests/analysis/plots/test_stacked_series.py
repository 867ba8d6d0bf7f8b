"""Memory over time by category, whole and thinned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tbmem.analysis.plots.stacked_series import (
    OTHER,
    Bands,
    Layers,
    bands_of,
    brush,
    layer_rank,
    layers_of,
    stacking_of,
)
from tbmem.analysis.recordings.analyzer import analyze
from tbmem.analysis.recordings.result import Analysis
from tbmem.model.category import Category, Phase
from tests.analysis.timelines import book, ns, recording, training_step

PARAMETER = (-1, 7, 800, Category.PARAMETER, "net.0.weight")


def test_layers_add_up_to_the_curve() -> None:
    # given two steps of a training with a parameter that is older than the recording
    analysis = analyze(recording(*training_step(0, 0), *training_step(1, 10)), book=book(PARAMETER))

    layers = layers_of(analysis, 0)

    # then every event is a moment, and the categories of each add up
    curve = analysis.timeline.curve(0)
    assert layers.event.tolist() == curve.event.tolist()
    assert layers.bytes.sum(axis=0).tolist() == layers.total.tolist() == curve.bytes.tolist()
    # and what stays lies below
    assert layers.names[0] == "PARAMETER"
    assert set(layers.bytes[0].tolist()) == {800}
    # and times never fall
    assert layers.ns is not None
    assert layers.ns[0] == layers.ns[1] == ns(0)
    assert layers.phase[4] == Phase.FORWARD
    assert layers.step[-1] == 1


def test_a_thinned_picture_loses_no_peak_and_no_valley() -> None:
    # given 10 000 small allocations, one large one among them, and one moment with nothing
    rows = [{"bytes": 10, "address": 1, "begin": 2 * at, "end": 2 * at + 1} for at in range(10_000)]
    rows.append({"bytes": 5000, "address": 2, "begin": 20_000, "end": 20_001})
    analysis = analyze(recording(*rows))

    layers = layers_of(analysis, 0, intervals=50)

    assert len(layers.event) < 300
    assert layers.total.max() == 5000 == analysis.main.peak.bytes
    assert layers.total[:-2].max() == 10
    assert layers.total.min() == 0
    assert layers.event[0] == -1
    assert layers.event[-1] == 20_001
    assert np.array_equal(layers.bytes.sum(axis=0), layers.total)


def test_nothing_holds_longer_than_it_did() -> None:
    # given a burst of 6000 allocations within a stretch of time, which leaves 10 bytes, and then a long pause
    rows = [{"bytes": 1000, "begin": 2 * at, "end": 2 * at + 1} for at in range(3000)]
    rows += [{"bytes": 10, "begin": 6000}, {"bytes": 2000, "begin": 6001, "end": 6002}, {"bytes": 1, "begin": 6003}]
    timeline = recording(*rows)
    pause = {"alloc_ns": timeline.rows.alloc_ns.copy()}
    pause["alloc_ns"][-1] += 10**9
    timeline = replace(timeline, rows=replace(timeline.rows, **pause))

    layers = layers_of(analyze(timeline), 0, intervals=100, cut=lambda event: (event >= 6003).astype(np.int64))
    by_default = layers_of(analyze(timeline), 0, intervals=100)

    # then it is these 10 bytes that hold through the pause, not the highest of the burst nor the lowest
    for found in (layers, by_default):
        assert found.event[-2:].tolist() == [6002, 6003]
        assert found.total[-2:].tolist() == [10, 11]


def test_bytes_without_a_row_are_unknown_ones() -> None:
    rows = training_step(0, 0)
    analysis = analyze(recording(*rows, device={"unlisted_bytes": 7000, "base_bytes": 7000}))

    layers = layers_of(analysis, 0)

    assert layers.bytes[layers.names.index("UNKNOWN")].min() == 7000
    assert np.array_equal(layers.bytes.sum(axis=0), layers.total)


def test_small_layers_are_put_together() -> None:
    analysis = analyze(recording(*training_step(0, 0)), book=book(PARAMETER))

    layers = layers_of(analysis, 0, stacking=stacking_of(analysis, 0, most=2))

    assert layers.names[-1] == OTHER
    assert len(layers.names) == 2
    assert np.array_equal(layers.bytes.sum(axis=0), layers.total)
    assert layer_rank("PARAMETER") < layer_rank("Attention") < layer_rank("TEMPORARY") < layer_rank("UNKNOWN")


def test_a_part_is_stacked_as_the_whole() -> None:
    # given memory that nothing is known of: none at first, and all of it in the second half
    unknown = [{"bytes": 100, "address": at, "begin": at, "end": 60} for at in range(20, 40)]
    known = [{"bytes": 100, "address": 99, "end": 50, "category": Category.ACTIVATION}]
    analysis = analyze(recording(*known, *unknown))

    whole, part = layers_of(analysis, 0), layers_of(analysis, 0, between=(40, 50))

    assert whole.names == part.names == ("ACTIVATION", "UNKNOWN")


def test_a_recording_without_events_has_one_moment() -> None:
    analysis = analyze(recording({"bytes": 100, "address": 1}))

    layers = layers_of(analysis, 0)

    assert layers.total.tolist() == [100]
    assert layers.ns is None


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


def test_a_device_on_which_nothing_was_allocated() -> None:
    layers = layers_of(analyze(recording()), 0)

    assert layers.names == ()
    assert layers.total.tolist() == [0]
