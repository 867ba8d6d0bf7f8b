"""Blocks of equal sizes: which are parameters, gradients and state."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from tbmem.analysis.recordings.copies_of_blocks import Copies, assigned, densest
from tbmem.model.category import Category
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import SegmentRows
from tbmem.units import MIB
from tests.analysis.timelines import recording

LAYER = (4, 3, 8)


def _blocks(*mebibytes: int, segments: tuple[int, ...] = ()) -> AllocationTimeline:
    address = np.cumsum([0, *mebibytes]) * MIB
    rows = [{"bytes": size * MIB, "address": int(at)} for size, at in zip(mebibytes, address, strict=False)]
    begin = np.cumsum([0, *segments])[:-1] * MIB
    table = SegmentRows.of(len(segments), device=0, address=begin, bytes=np.array(segments, np.int64) * MIB)
    return replace(recording(*rows), segments=table)


def _names(timeline: AllocationTimeline, copies: Copies) -> str:
    blocks, category = assigned(timeline, 0, np.arange(len(timeline)), copies)
    return "".join(Category(int(one)).name[0] for one in category[np.argsort(blocks)])


def _copies(parameters: dict[int, int], gradients: int = 0, states: int = 0) -> Copies:
    one = Counter({size * MIB: count for size, count in parameters.items()})
    parts = (Counter({size: number * count for size, count in one.items()}) for number in (gradients, states))
    return Copies(one, *parts)


def test_the_copy_that_lies_close_together_is_the_parameters() -> None:
    # given state far before two layers, where warm-up left room, and behind them
    timeline = _blocks(4, 4, 90, *LAYER, *LAYER, 3, 8, 3, 8)

    assert _names(timeline, _copies({4: 2, 3: 2, 8: 2}, states=1)) == "OOUPPPPPPOOOO"


def test_gradients_follow_parameters_and_state_comes_last() -> None:
    assert _names(_blocks(*LAYER * 4), _copies(dict.fromkeys(LAYER, 1), gradients=1, states=2)) == "PPPGGGOOOOOO"


def test_where_addresses_go_downwards_so_do_the_copies() -> None:
    # given small blocks, which come first, at the highest address
    timeline = _blocks(*LAYER, *LAYER, 2, 2, 2, 2, segments=(15, 15, 8))

    assert _names(timeline, _copies({4: 1, 3: 1, 8: 1, 2: 4}, states=1)) == "OOOPPPPPPP"


def test_what_no_copy_explains_stays_unknown() -> None:
    assert _names(_blocks(*LAYER, 8, 5), _copies(dict.fromkeys(LAYER, 1))) == "PPPUU"


def test_a_series_behind_the_layers_is_a_cache() -> None:
    layers, cache = (4, *LAYER) * 4, (4,) * 9

    assert _names(_blocks(*layers, *cache), _copies({4: 17, 3: 4, 8: 4})) == "P" * 16 + "U" * 9


def test_equal_layers_alone_are_no_series() -> None:
    assert _names(_blocks(*[4] * 12), _copies({4: 12})) == "P" * 12


def test_of_two_equally_dense_stretches_the_first_counts() -> None:
    sizes = np.array([3, 4, 3, 4], np.int64)

    assert densest(sizes, np.array([0, 3, 7, 10]), Counter({3: 1, 4: 1})) == 0
    assert densest(sizes, np.array([0, 95, 100, 103]), Counter({3: 1, 4: 1})) == 1
