"""A series of a run goes in; which of its columns are drawn, how, and what is marked on them, comes out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tbmem.analysis.series import Series
from tbmem.model.finding import Finding
from tbmem.present.colours import BLUE, GREEN, MUTED, PINK, RED
from tbmem.present.console import device_label, peak_word

SHOWN = (
    ("reserved", "reserved", MUTED, "dash"),
    ("peak", "peak within the steps", RED, "solid"),
    ("allocated", "allocated after the step", BLUE, "solid"),
    ("host", "resident (RSS)", GREEN, "solid"),
    ("workers", "worker processes", PINK, "solid"),
)
"""Columns of a series, what they are called, their colour and line."""
_CAPACITY_FROM = 0.6
"""Of the capacity: from there on its line is in the picture."""


def series_name(series: Series, several_ranks: bool) -> str:
    """``'GPU 0'``, with the rank where there are several."""
    return f"rank {series.rank} · {device_label(series.device)}" if several_ranks else device_label(series.device)


def shown_columns(series: Series) -> list[tuple[str, str, str, str]]:
    """Of ``SHOWN`` what this series has; the host's memory only beside the CPU's own."""
    on_cpu = series.device == "cpu"
    word = peak_word("host_peak_rss" if on_cpu else "peak_allocated")
    named = [(name, text.replace("peak", word), colour, line) for name, text, colour, line in SHOWN]
    names = [row for row in named if series.most(row[0])]
    return [row for row in names if on_cpu or row[0] not in ("host", "workers")]


def highest_of(series: Series) -> float:
    """The largest value that is drawn; bytes."""
    return float(max([series.most(row[0]) or 0 for row in shown_columns(series)], default=0))


def capacity_of(series: Series) -> float | None:
    """The device's capacity, if the series comes near it."""
    capacity = series.most("capacity")
    return float(capacity) if capacity and highest_of(series) >= _CAPACITY_FROM * capacity else None


def marks_of(series: Series, findings: Sequence[Finding]) -> list[Finding]:
    """Findings about this series that are told; a suspicion is not."""
    return [one for one in findings if (one.rank, one.device) == (series.rank, series.device) and not one.kind.is_quiet]


def level_at(series: Series, step: int) -> float:
    """The highest bytes at a step or just before it, for a mark; 0 if nothing is known."""
    level = series.level()
    at = min(int(np.searchsorted(series.step, step)), len(level) - 1)
    return float(np.nan_to_num(level[at]))
