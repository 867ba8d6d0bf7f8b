"""Reads the live logs of a run, one for each rank, into the states of its ranks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tbmem.analysis.runs.run_status import RankState
from tbmem.errors import FileFormatError, TbmemError, UsageError
from tbmem.model.files import ESTIMATE_SUFFIX, MONITOR_LOG, TIMELINE_SUFFIX
from tbmem.model.monitor_log import MonitorLog, read_monitor_log
from tbmem.sources.runs.catalog import RunFiles, find_runs, run_folder
from tbmem.sources.runs.log_reader import FollowedLog
from tbmem.sources.runs.process_identity import is_alive
from tbmem.sources.runs.recording_files import IN_FOLDERS

_MAX_NAMED_RUNS = 5
_ELSEWHERE = "traces, snapshots and estimates are for tbmem analyze"


class RunLogs(NamedTuple):
    """The logs of one run."""

    name: str
    folder: Path
    logs: tuple[MonitorLog, ...]
    states: tuple[RankState, ...]
    """Sorted by rank."""


def read_run(path: str | os.PathLike[str]) -> RunLogs:
    """Read all logs of a run, given by its folder, one above it with a single run in it, or the log itself.

    Raises:
        FileFormatError: There is no such folder, or no log in it, or it is damaged, or holds no record.
        UsageError: There are several runs in the folder.
        OSError: A file cannot be read.
    """
    folder = Path(path).expanduser().absolute()
    if not folder.exists():
        raise FileFormatError(f"{path}: no such file or folder; a run's folder or its log is needed")
    if folder.name.endswith(IN_FOLDERS) and folder.is_file():
        raise FileFormatError(f"{path}: a recording, not a run; {_ELSEWHERE}")
    if folder.is_dir() and not any(folder.rglob(MONITOR_LOG)):
        if not any(folder.iterdir()):
            raise FileFormatError(f"{path}: this folder is empty; name a run's, such as runs/20261128-101500")
        raise FileFormatError(f"{path}: no live log ({MONITOR_LOG}) in this folder; {_ELSEWHERE}")
    run, *others = find_runs(folder)
    if others:
        raise UsageError(_which_of(path, [run, *others]))
    pairs = [read_log(log) for log in run.logs]
    states = sorted((state for _, state in pairs), key=lambda state: state.rank)
    require_records(path, states)
    of_run = run_folder(run.logs[0])
    return RunLogs(of_run.name or "run", of_run, tuple(log for log, _ in pairs), tuple(states))


def require_records(path: str | os.PathLike[str], states: Sequence[RankState]) -> None:
    """Raise an error if nothing at all can be read of a run.

    Raises:
        FileFormatError: No log has a whole record.
    """
    if not any(state.header or state.has_begun for state in states):
        raise FileFormatError(f"{path}: its log has no whole record: it was cut off or damaged; run the program again")


def recordings_alone(path: str | os.PathLike[str]) -> Path | None:
    """The recording, or the folder of them, that a path names if no live log is beside them; ``None`` otherwise.

    The figures of an estimate name the recording that was written with them.
    """
    named = Path(path).expanduser()
    if named.name.endswith(ESTIMATE_SUFFIX):
        named = named.with_name(named.name.removesuffix(ESTIMATE_SUFFIX) + TIMELINE_SUFFIX)
    if named.is_file():
        return named if named.name.endswith(IN_FOLDERS) else None
    has_recordings = any(file.name.endswith(IN_FOLDERS) for file in named.rglob("*"))
    return named if has_recordings and not any(named.rglob(MONITOR_LOG)) else None


def read_log(path: Path) -> tuple[MonitorLog, RankState]:
    """Read a log and the state of its rank; the log is read again if its process is gone by then.

    Raises:
        FileFormatError: The file is not a live log.
        OSError: It cannot be read.
    """
    log, alive = read_monitor_log(path), None
    if not log.has_ended:
        alive = is_alive(log.headers[-1].get("process") or {} if log.headers else {})
        log = read_monitor_log(path) if alive is False else log
    state = RankState()
    state.add(log)
    state.is_alive = alive
    return log, state


class FollowedRun:
    """A run whose logs may still be written to."""

    def __init__(self, files: RunFiles) -> None:
        self.files = files
        self._logs = [(FollowedLog(path), RankState()) for path in files.logs]
        self.errors: list[TbmemError] = []
        """Of logs that could not be read the last time; they do not keep from reading the others."""

    def read(self) -> None:
        """Read what was written since the last call."""
        self.errors = []
        for log, state in self._logs:
            try:
                _read_on(state, log)
            except TbmemError as error:
                self.errors.append(error)

    @property
    def states(self) -> Sequence[RankState]:
        """Sorted by rank."""
        return sorted((state for _, state in self._logs), key=lambda state: state.rank)


def _read_on(state: RankState, log: FollowedLog) -> None:
    _update(state, log)
    if state.end is None and state.signal is None:
        state.is_alive = is_alive(state.header.get("process") or {})
        _update(state, log)  # the last lines of a process that is gone


def _update(state: RankState, log: FollowedLog) -> None:
    try:
        for piece in log.read():
            state.add(piece)
    except OSError as error:
        raise UsageError(f"{log.path}: cannot be read: {error.strerror or error}") from error


def _which_of(path: str | os.PathLike[str], runs: Sequence[RunFiles]) -> str:
    names = ", ".join(run.name for run in reversed(runs[-_MAX_NAMED_RUNS:]))
    return f"{path}: {len(runs)} runs; name one of them, the newest first: {names}"


def read_one_run(path: str | os.PathLike[str], *, newest: bool = False) -> FollowedRun:
    """Read the only run that a path means, or the one of several that was written to last (``newest``).

    Raises:
        UsageError: There is none, or there are several, or a log cannot be read.
        FileFormatError: A file is not a live log, or holds no record.
    """
    runs = find_runs(path)
    if len(runs) > 1 and not newest:
        raise UsageError(f"{_which_of(path, runs)}; or take that with --newest")
    run = FollowedRun(runs[-1])
    run.read()
    if run.errors:
        raise run.errors[0]
    require_records(path, run.states)
    return run
