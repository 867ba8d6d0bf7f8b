"""One live log that may still be written: its records, the state of its rank and its series, read on from the end."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from tbmem.analysis.plots.curves import even_intervals, extremes
from tbmem.analysis.runs.device_history import peak_levels
from tbmem.analysis.runs.run_status import RankState
from tbmem.model.columns import F64, I64
from tbmem.model.monitor_log import MonitorLog
from tbmem.present.views.live import DeviceSeries, ExtremeRows
from tbmem.sources.runs.log_reader import ColumnLog, DeviceColumns, sample_rows

_STATE_ROWS = 4000


class FollowedRank:
    """A live log up to its current end; each call of ``read`` takes time for what is new only.

    Args:
        path: The log.
    """

    def __init__(self, path: Path) -> None:
        self.log = ColumnLog(path)
        self.state = RankState()
        # what the state already has
        self._rest, self._starts = self.log.rest, 0
        self._findings = self._gaps = 0
        self._counts: dict[tuple[int, str], int] = {}
        self._extremes: dict[tuple[int, str], ExtremeRows] = {}

    @property
    def unread(self) -> float:
        """Share of the file, from 0 to 1, that the last call of ``read`` did not come to."""
        return self.log.unread

    @property
    def rest(self) -> MonitorLog:
        """The records without samples."""
        rest = self.log.rest
        headers, findings, windows, gaps = [*rest.headers], [*rest.findings], [*rest.windows], [*rest.gaps]
        return replace(rest, headers=headers, findings=findings, windows=windows, gaps=gaps)

    def read(self, until: float = math.inf) -> list[DeviceSeries]:
        """Read on; arguments and errors as of :meth:`ColumnLog.read`."""
        self.log.read(until)
        devices = self.log.devices()
        rest = self.log.rest
        counts = {device[:2]: len(device.columns["step"]) for device in devices}
        shrunk = any(counts.get(key, 0) < count for key, count in self._counts.items())
        if rest is not self._rest or len(rest.headers) != self._starts or shrunk:
            self._begin_anew()
        if rest.headers and not self.state.header:
            self.state.add(MonitorLog(headers=rest.headers[-1:]))
        for device in devices:
            rows = _state_rows(device, self._counts.get(device[:2], 0))
            self.state.add(MonitorLog(rows=sample_rows(device, rows)))
        findings, gaps = rest.findings[self._findings :], rest.gaps[self._gaps :]
        self.state.add(MonitorLog(findings=findings, gaps=gaps, end=rest.end, signal=rest.signal))
        self.state.has_begun = self.state.has_begun or bool(rest.windows)
        self._counts, self._findings, self._gaps = counts, len(rest.findings), len(rest.gaps)
        return [DeviceSeries(*device, self._extremes.setdefault(device[:2], ExtremeRows())) for device in devices]

    def _begin_anew(self) -> None:
        """The log was replaced, or a run was resumed in it."""
        self.state.__init__()  # type: ignore[misc]
        self._rest, self._starts = self.log.rest, len(self.log.rest.headers)
        self._findings = self._gaps = 0
        self._counts, self._extremes = {}, {}


def _state_rows(device: DeviceColumns, begin: int) -> I64:
    """Rows from ``begin`` on that determine a rank's state: of many the ends and the extremes of each range of rows."""
    columns: dict[str, F64] = {name: values[begin:] for name, values in device.columns.items()}
    count = len(columns["step"])
    if count <= _STATE_ROWS:
        return np.arange(begin, begin + count)
    level = peak_levels(device.device, columns)
    low = np.nan_to_num(columns["allocated"])
    stretch = even_intervals(count, _STATE_ROWS // 4)
    last = np.flatnonzero(columns["count"] != 0)[-1:]  # the step after it may have a row, and has not ended
    ends = np.concatenate([[0, count - 1], last])
    chosen: I64 = begin + np.unique(np.concatenate([ends, extremes(level, stretch), extremes(low, stretch)]))
    return chosen
