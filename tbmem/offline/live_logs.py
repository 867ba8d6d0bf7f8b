"""A run's folder as a user types it goes in; its live logs, one for each rank, come out."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tbmem.analysis.run_state import RunState
from tbmem.errors import FileFormatError, UsageError
from tbmem.model.files import MONITOR_LOG
from tbmem.model.monitor_log import MonitorLog, read_monitor_log
from tbmem.offline.recordings import IN_FOLDERS
from tbmem.sources.processes import is_alive

_RANK_FOLDER = re.compile(r"rank\d+")
_DEPTH = len(Path(MONITOR_LOG).parts)
_NAMED = 5
_ELSEWHERE = "traces, snapshots and estimates are for tbmem analyze"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLogs:
    """The logs of one run."""

    folder: Path
    logs: tuple[MonitorLog, ...]
    states: tuple[RunState, ...]
    """Where each rank stands, by rank."""

    @property
    def name(self) -> str:
        """Of the run: its folder's."""
        return self.folder.name or "run"


def read_run(path: str | os.PathLike[str]) -> RunLogs:
    """Read all logs of a run.

    Args:
        path: The run's folder, one above it with a single run in it, or the log itself.

    Raises:
        FileFormatError: There is no such folder, or no log in it, or it is damaged.
        UsageError: There are several runs in the folder.
        OSError: A file cannot be read.
    """
    place = Path(path).expanduser().absolute()
    if place.is_file():
        if place.name.endswith(IN_FOLDERS):
            raise FileFormatError(f"{path}: a recording, not a run; {_ELSEWHERE}")
        return _read(_run_of(place), [place])
    if not place.is_dir():
        raise FileFormatError(f"{path}: no such file or folder")
    found = sorted(place.rglob(MONITOR_LOG))
    if not found:
        raise FileFormatError(f"{path}: no live log ({MONITOR_LOG}) in this folder; {_ELSEWHERE}")
    runs = sorted({_run_of(log) for log in found})
    if len(runs) > 1:
        names = ", ".join(run.name for run in runs[-_NAMED:])
        raise UsageError(f"{path}: {len(runs)} runs; name one of them, such as {names}")
    return _read(runs[0], found)


def _read(folder: Path, paths: Sequence[Path]) -> RunLogs:
    pairs = [read_log(path) for path in paths]
    states = sorted((state for _, state in pairs), key=lambda state: state.rank)
    return RunLogs(folder=folder, logs=tuple(log for log, _ in pairs), states=tuple(states))


def read_log(path: Path) -> tuple[MonitorLog, RunState]:
    """A log, and where its rank stands; whether its process is there is asked between two looks at how it ended.

    Raises:
        FileFormatError: It is something else.
        OSError: It cannot be read.
    """
    log, alive = read_monitor_log(path), None
    if not log.has_ended:
        alive = is_alive((log.headers[-1] if log.headers else {}).get("process") or {})
        log = read_monitor_log(path) if alive is False else log
    state = RunState()
    state.add(log)
    state.is_alive = alive
    return log, state


def _run_of(log: Path) -> Path:
    """The run's folder: above the plugin's, and above that of the rank."""
    folder = log.parents[_DEPTH - 1] if str(log).endswith(MONITOR_LOG) else log.parent
    return folder.parent if _RANK_FOLDER.fullmatch(folder.name) else folder
