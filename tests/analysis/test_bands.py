"""Bands are to scale: at every moment they lie upon each other without a hole, and add up."""

from __future__ import annotations

import numpy as np
import pytest

from tbmem.analysis.bands import Bands, bands_of
from tbmem.analysis.brush import brush
from tbmem.model.timeline import AllocationTimeline
from tests.analysis.timelines import recording


def bases(bands: Bands, event: int) -> dict[int, int]:
    """Where each band lies at an event."""
    found = {}
    for band, row in enumerate(bands.row.tolist()):
        if not bands.begin[band] <= event < max(bands.end[band], bands.begin[band] + 1):
            continue
        corners = slice(bands.start[band], bands.start[band + 1])
        at = int(np.searchsorted(bands.corner[corners], event, side="right")) - 1
        found[row] = int(bands.base[corners][at])
    return found


def all_bands(timeline: AllocationTimeline, begin: int = -1, largest: int = 100, **more: int) -> Bands:
    events = timeline.devices[0].events
    pixel = more.get("pixel", 1)
    return bands_of(timeline, 0, begin, events - 1, largest, more.get("corners", 10_000), lambda event: event // pixel)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("begin", [-1, 30])
def test_no_hole_at_any_moment(seed: int, begin: int) -> None:
    random = np.random.default_rng(seed)
    order = random.permutation(80)
    pairs = [sorted(order[2 * at : 2 * at + 2].tolist()) for at in range(40)]
    rows = [{"bytes": int(random.integers(1, 100)), "begin": low, "end": high} for low, high in pairs]
    timeline = recording(*rows, {"bytes": 50}, {"bytes": 7, "end": 90}, {"bytes": 3, "begin": 89})

    bands = all_bands(timeline, begin)

    for event in range(begin, 88):
        alive = timeline.alive_at(0, event)
        found = bases(bands, event)
        assert sorted(found) == alive.tolist()
        ends = sorted((base, base + int(timeline.rows.bytes[row])) for row, base in found.items())
        assert [low for low, _ in ends] == [0, *(high for _, high in ends[:-1])]


def test_the_largest_are_kept_and_counted() -> None:
    rows = [{"bytes": 10 * number, "begin": number, "end": number + 20} for number in range(1, 11)]

    bands = all_bands(recording(*rows), largest=3)

    assert bands.row.tolist() == [7, 8, 9]
    assert (bands.found, bands.bytes) == (10, 550)


def test_fewer_bands_where_there_would_be_too_many_corners() -> None:
    # given bands that all sink again and again
    short = [{"bytes": 1000 + at, "begin": at, "end": 500 + at} for at in range(200)]
    timeline = recording(*short)

    bands = all_bands(timeline, largest=200, corners=2000)

    assert 16 <= len(bands.row) < 200
    assert len(bands.corner) <= 2000
    assert 199 in bands.row


def test_corners_in_one_pixel_are_one() -> None:
    rows = [{"bytes": 5, "begin": at, "end": 40 + at} for at in range(10)]

    bands = all_bands(recording(*rows), pixel=1000)

    assert np.diff(bands.start).max() <= 2


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
