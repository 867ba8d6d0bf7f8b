"""What the logs of a run say, as records that the views of runs are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tbmem.analysis.run_state import RunState
from tbmem.model.finding import Finding
from tbmem.present.views.runs import FileItem

F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class DeviceSeries:
    """One device of one rank, all of its log's rows."""

    rank: int
    device: str
    columns: Mapping[str, F64]
    """By the names of the log's fields; NaN where a counter was not read."""

    def peak(self) -> F64:
        """Highest level within the steps of each row; of the CPU the resident memory's."""
        peak = self.columns["peak_allocated"]
        return np.where(np.isnan(peak), self.columns["host_peak_rss"], peak) if self.device == "cpu" else peak


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """A run as its logs tell it."""

    name: str
    states: Sequence[RunState] = ()
    """One per rank that could be read."""
    series: Sequence[DeviceSeries] = ()
    windows: Sequence[Mapping[str, Any]] = ()
    """As logged, with the ``rank``."""
    findings: Sequence[Finding] = ()
    errors: Sequence[FileItem] = ()
    recordings: Sequence[str] = ()
    """Files."""
    notes: Sequence[str] = field(default=())

    @property
    def began(self) -> float:
        """Unix time; 0 if not known."""
        return min([float(state.header["started"]) for state in self.states if "started" in state.header], default=0.0)
