"""A recording whose categories are known from an address book."""

from __future__ import annotations

from tbmem.analysis.recordings.analyzer import analyze
from tbmem.analysis.recordings.result import Analysis
from tbmem.model.category import Category
from tests.analysis.timelines import book, recording, training_step


def traced() -> Analysis:
    """Two steps of training on the CPU, with a parameter from before."""
    rows = [*training_step(0, 0), *training_step(1, 10)]
    notes = book((-1, 7, 800, Category.PARAMETER, "net.0.weight"), (1.5, 200, 1000, Category.ACTIVATION, "net.0"))
    return analyze(recording(*rows), book=notes, name="here")
