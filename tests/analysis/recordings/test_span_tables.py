"""Phases and modules: levels, allocations and categories within spans of time, from recordings made by hand."""

from __future__ import annotations

from tbmem.analysis.recordings.analyzer import analyze
from tbmem.analysis.recordings.span_tables import module_table, phase_table
from tbmem.model.category import Basis, Category
from tbmem.model.span import Span
from tests.analysis.timelines import ns, recording

KNOWN = {"basis": Basis.KNOWN}
ROWS = (
    {"bytes": 100, "begin": -1, "category": Category.PARAMETER, **KNOWN},
    {"bytes": 40, "begin": 0, "end": 3, "category": Category.ACTIVATION, "name": "layers.0", **KNOWN},
    {"bytes": 7, "begin": 1, "end": 2, "category": Category.TEMPORARY},
    {"bytes": 20, "begin": 4, "category": Category.GRADIENT, **KNOWN},
)


def span(name: str, begin: float, end: float) -> Span:
    return Span(name, ns(begin), ns(end))


def test_a_phase_has_its_peak_and_what_it_added_by_category() -> None:
    analysis = analyze(recording(*ROWS))

    forward, backward = phase_table(analysis, [span("backward", 2.5, 5), span("forward", -0.5, 2.5)])

    assert (forward.name, forward.device, forward.calls) == ("forward", "cpu", 1)
    assert (forward.peak, forward.allocated, forward.net) == (147, 47, 40)
    assert forward.by_category == {"ACTIVATION": 40}
    assert (backward.peak, backward.net) == (140, -20)
    assert backward.by_category == {"GRADIENT": 20, "ACTIVATION": -40}
    assert repr(backward) == "backward on cpu: peak 140 B, net -20 B, 1 call"


def test_a_phase_that_comes_again_is_one_row_with_the_highest_peak() -> None:
    analysis = analyze(recording(*ROWS))

    (phase,) = phase_table(analysis, [span("part", -0.5, 0.5), span("part", 3.5, 5)])

    assert (phase.calls, phase.peak, phase.net) == (2, 140, 60)


def test_a_phase_without_allocations_has_the_level() -> None:
    (phase,) = phase_table(analyze(recording(*ROWS)), [span("wait", 8, 9)])

    assert (phase.peak, phase.allocated, phase.net, phase.by_category) == (120, 0, 0, {})


def test_modules_with_those_in_them() -> None:
    analysis = analyze(recording(*ROWS))
    calls = [span("layers.0", -0.2, 2.2), span("layers", -0.3, 2.3), span("", -0.5, 2.5), span("layers.0", 3.5, 5)]

    model, layers, layer = module_table(analysis, calls, {"": "Net", "layers.0": "Linear"})

    assert [row.name for row in (model, layers, layer)] == ["", "layers", "layers.0"]
    assert (model.allocated, model.kept, model.saved, model.peak) == (47, 40, 40, 147)
    assert (layer.calls, layer.allocated, layer.saved, layer.peak) == (2, 47, 40, 147)
    assert repr(layer) == "layers.0 (Linear): allocated 47 B, saved 40 B, peak 147 B"
