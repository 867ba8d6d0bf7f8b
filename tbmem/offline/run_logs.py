"""A run folder goes in; what its live log says of the whole run, device by device, comes out."""

from __future__ import annotations

import os
from pathlib import Path

from tbmem.analysis.comparison import RunFigures
from tbmem.model.layout import MONITOR_LOG
from tbmem.model.monitor_log import MonitorLog, read_monitor_log


def run_figures(place: str | os.PathLike[str]) -> dict[str, RunFigures]:
    """Highest and last level of each device, over all logs below a folder; nothing without a log.

    Args:
        place: A run folder, a folder of runs or ranks, or a log itself.

    Raises:
        FileFormatError: A log is something else.
        OSError: A log cannot be read.
    """
    path = Path(place)
    name = Path(MONITOR_LOG).name
    logs = sorted(path.rglob(MONITOR_LOG)) if path.is_dir() else [path] if path.name == name and path.exists() else []
    found: dict[str, RunFigures] = {}
    for log in logs:
        for figures in _of_log(read_monitor_log(log)):
            before = found.get(figures.device)
            if before is None or figures.peak_bytes > before.peak_bytes:
                found[figures.device] = figures
    return found


def _of_log(log: MonitorLog) -> list[RunFigures]:
    peaks: dict[str, int] = {}
    levels: dict[str, int] = {}
    # the profiler's own memory is in the figures of the steps that it recorded
    for row in [row for row in log.rows if not row.sample.profiled] or log.rows:
        sample = row.sample
        highest = max((value for value in (sample.highest, row.allocated_max) if value is not None), default=None)
        if highest is not None:
            peaks[sample.device] = max(highest, peaks.get(sample.device, 0))
        if sample.allocated is not None:
            levels[sample.device] = sample.allocated
    return [RunFigures(device, peak, levels.get(device)) for device, peak in peaks.items()]
