"""The axis of a timeline, its spans, and the picture."""

from __future__ import annotations

import numpy as np

from tbmem.analysis.plots.stacked_series import layers_of
from tbmem.analysis.recordings.analyzer import analyze
from tbmem.model.category import Category
from tbmem.present.figures.timeline import axis_of, spans
from tests.analysis.timelines import book, recording, training_step


def test_a_long_pause_is_drawn_by_events() -> None:
    rows = training_step(0, 0) + training_step(1, 10)
    even = layers_of(analyze(recording(*rows), book=book((-1, 7, 8, Category.PARAMETER, "w"))), 0)
    assert axis_of(even)[1] == "time since the recording began, µs"
    assert even.ns is not None
    # given the same with a pause of an hour in the middle
    paused = even._replace(ns=even.ns + 3_600 * 10**9 * (even.event > 9))
    assert axis_of(paused)[1].startswith("event of the allocator")
    assert axis_of(even._replace(ns=None))[1].startswith("event of the allocator")


def test_short_spans_become_part_of_the_one_before() -> None:
    merged = spans(np.array([1, 1, 2, 1, 3]), np.array([0.0, 5, 10, 10.1, 20]), least=1)

    assert [(span.begin, span.end, span.value) for span in merged] == [(0, 20, 1)]


def test_spans_end_where_the_next_begins() -> None:
    found = spans(np.array([0, 0, 2, 2, 1]), np.array([0.0, 1, 4, 5, 9]))

    assert found == [(0, 4, 0), (4, 9, 2), (9, 9, 1)]


def test_times_have_the_unit_of_their_extent() -> None:
    layers = layers_of(analyze(recording(*training_step(0, 0))), 0)
    assert layers.ns is not None
    # given the same points, evenly over four seconds
    ns = np.linspace(0, 4e9, len(layers.ns)).astype(np.int64)

    x, label = axis_of(layers._replace(ns=ns + 10**18))

    assert label == "time since the recording began, s"
    assert (x[0], x[-1]) == (0.0, 4.0)
