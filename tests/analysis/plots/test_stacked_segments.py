"""Segments as bands over their lifetime: they add up to the reserved memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tbmem.analysis.allocator.reserved import UNTIL_THE_END, Reserved, reserved_memory
from tbmem.analysis.plots.curves import even_intervals
from tbmem.analysis.plots.stacked_segments import SegmentLayers, segment_layers
from tbmem.model.columns import I64
from tbmem.sources.snapshot.reader import read_snapshot
from tests.conftest import CORPUS

#               begin  end  first last pool
SEGMENTS = [
    (1000, 1100, -1, UNTIL_THE_END, 0),
    (2000, 2050, 3, 8, 1),
    (3000, 3020, 5, UNTIL_THE_END, 0),
]


def reserved(*rows: tuple[int, int, int, int, int]) -> Reserved:
    begin, end, first, last, pool = np.array(rows, np.int64).T
    nothing = np.zeros(len(rows), np.int64)
    return Reserved(begin, end, first, last, nothing, nothing, pool, nothing, nothing - 1)


def layers(*rows: tuple[int, int, int, int, int], between: tuple[int, int] = (-1, 9), most: int = 9) -> SegmentLayers:
    def cut(event: I64) -> I64:
        return even_intervals(len(event), 100)

    return segment_layers(reserved(*rows), between, 100, most, cut)


def test_each_pool_is_a_layer_and_each_segment_a_band() -> None:
    found = layers(*SEGMENTS)

    assert found.event.tolist() == [-1, 3, 5, 8]
    assert found.pools == (0, 1)
    assert found.bytes.tolist() == [[100, 100, 120, 120], [0, 50, 50, 0]]
    assert found.segment.tolist() == [0, 2, 1]
    assert list(zip(found.first.tolist(), found.last.tolist(), strict=True)) == [(0, 4), (2, 4), (1, 3)]


def test_a_range_has_what_was_there_in_it() -> None:
    found = layers(*SEGMENTS, between=(5, 7))

    assert found.event.tolist() == [5]
    assert found.bytes.tolist() == [[120], [50]]
    assert found.present == 3
    assert layers(*SEGMENTS, between=(8, 9)).pools == (0,)


def test_the_largest_have_bands() -> None:
    found = layers(*SEGMENTS, most=1)

    assert (found.segment.tolist(), found.present) == ([0], 3)


@pytest.mark.parametrize("path", sorted((CORPUS / "snapshots").glob("*.pickle")), ids=lambda path: path.stem[:20])
def test_they_add_up_to_the_reserved_curve(path: Path) -> None:
    timeline = read_snapshot(path)
    for device, totals in enumerate(timeline.devices):
        curve = timeline.reserved_curve(device)

        found = segment_layers(
            reserved_memory(timeline, device), (-1, totals.events - 1), 10**6, 2500, lambda event: event
        )

        at = np.searchsorted(curve.event, found.event, side="right") - 1
        assert found.bytes.sum(axis=0).tolist() == curve.bytes[at].tolist()
