"""What the logs of a run say, as records that the views of runs are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tbmem.analysis.plots.curves import even_intervals, extremes
from tbmem.analysis.runs.run_status import RankState
from tbmem.model.columns import F64, I64
from tbmem.model.finding import Finding
from tbmem.present.views.run_schema import FileItem

_NAMES: Mapping[str, tuple[str, ...]] = {
    "allocated": ("allocated",),
    "lowest": ("allocated_min", "allocated"),
    "highest": ("allocated_max", "allocated"),
    "reserved": ("reserved",),
    "device_used": ("device_used",),
    "host": ("host_rss",),
    "workers": ("workers_rss",),
}
"""What is drawn, by the columns of the log: the first that is known."""
LINES = (*_NAMES, "peak")
_FINE = 5000
"""Stretches of which the extremes are known in advance."""


@dataclass(frozen=True)
class DeviceSeries:
    """One device of one rank, all of its log's rows."""

    rank: int
    device: str
    columns: Mapping[str, F64]
    """By the names of the log's fields; NaN where a counter was not read."""

    def line(self, name: str, rows: NDArray[Any] | slice = slice(None)) -> F64:
        """One of ``LINES``; the peak is the highest level within a row's steps, of the CPU the resident memory's."""
        names = ("peak_allocated",) if self.device != "cpu" else ("peak_allocated", "host_peak_rss")
        first, *others = _NAMES.get(name, names)
        found = self.columns[first][rows]
        for other in others:
            found = np.where(np.isnan(found), self.columns[other][rows], found)
        return found

    @property
    def peak_counter(self) -> str:
        """The counter that the line ``peak`` is of."""
        return "host_peak_rss" if self.device == "cpu" else "peak_allocated"

    @cached_property
    def telling(self) -> I64:
        """Rows among which the extremes of every line and stretch are: all of a short log, few of a long one."""
        count = len(self.columns["step"])
        return extremes_of(self, np.arange(count), _FINE) if count > 20 * _FINE else np.arange(count)


def extremes_of(one: DeviceSeries, rows: I64, stretches: int) -> I64:
    """Of ascending rows those that a picture needs: the ends, and of each stretch each line's highest and lowest."""
    stretch = even_intervals(len(rows), stretches)
    found = [np.array([0, max(len(rows) - 1, 0)])]
    for name in LINES:
        line = one.line(name, rows)
        known = ~np.isnan(line)
        if known.any():
            found.append(extremes(line if known.all() else np.where(known, line, np.nanmin(line)), stretch))
    kept: I64 = rows[np.unique(np.concatenate(found))]
    return kept


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """A run as its logs tell it."""

    name: str
    states: Sequence[RankState] = ()
    """One per rank that could be read."""
    series: Sequence[DeviceSeries] = ()
    windows: Sequence[Mapping[str, Any]] = ()
    """As logged, with the ``rank``."""
    findings: Sequence[Finding] = ()
    errors: Sequence[FileItem] = ()
    recordings: Sequence[str] = ()
    """Files."""
    notes: Sequence[str] = field(default=())
    logs: Sequence[Any] = ()
    """Files that the states were read from, in their order."""

    @property
    def began(self) -> float:
        """Unix time; 0 if not known."""
        return min([float(state.header["started"]) for state in self.states if "started" in state.header], default=0.0)
