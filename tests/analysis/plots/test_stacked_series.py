"""Memory over time by category, whole and thinned."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tbmem.analysis.plots.stacked_series import OTHER, layer_rank, layers_of, stacking_of
from tbmem.analysis.recordings.analyzer import analyze
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
