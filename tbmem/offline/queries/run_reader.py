"""Reads logs and recordings of runs, kept while their files do not change; each broken one is an error of its own."""

from __future__ import annotations

import logging
import mmap
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np

from tbmem.analysis.plots.curves import even_stretches, extremes
from tbmem.analysis.recordings.analyzer import analyze
from tbmem.analysis.runs.run_peak import peak_levels
from tbmem.analysis.runs.run_report import RunState
from tbmem.analysis.runs.run_status import RunStatus, run_status
from tbmem.errors import FileFormatError, TbmemError, UsageError
from tbmem.model.columns import I64
from tbmem.model.finding import Finding
from tbmem.model.monitor_log import MonitorLog, take_line
from tbmem.offline.queries.params import MissingError, OutsideError
from tbmem.present.views.live import DeviceSeries, LoggedRun
from tbmem.present.views.recording_view import RecordingView
from tbmem.present.views.run_schema import FileItem
from tbmem.sources.recording import read_recording
from tbmem.sources.runs.catalog import LOG, Catalog, Key, Run, RunFile, is_inside
from tbmem.sources.runs.log_reader import ColumnLog, DeviceColumns, sample_rows
from tbmem.sources.runs.process_identity import is_alive

_logger = logging.getLogger(__name__)
_MOST_ROWS = 3_000_000
_MOST_SUBJECTS = 24
_MOST_LOG_ROWS = 4_000_000
_MOST_LOGS = 2000
_STATE_ROWS = 4000
_KEPT_RUNS = 32
_TAIL = 64 << 10
_LAST_LINES = 8
_HEADER = b'{"type":"header"'
_Name = TypeVar("_Name")
_Value = TypeVar("_Value")


class RunReader:
    """Reads what is asked for, once."""

    def __init__(self, catalog: Catalog, now: Callable[[], float]) -> None:
        self.catalog = catalog
        self._now = now
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._subjects: OrderedDict[Key, RecordingView] = OrderedDict()
        self._logs: OrderedDict[str, ColumnLog] = OrderedDict()
        self._errors: dict[Key, str] = {}
        self._edges: dict[str, tuple[Key, RunState]] = {}
        self._logged: OrderedDict[str, tuple[tuple[str, int], LoggedRun]] = OrderedDict()

    def run(self, name: str | None, key: str = "run") -> Run:
        """A run by its name.

        Raises:
            MissingError: There is none.
            UsageError: No name is given.
        """
        if name is None:
            raise UsageError(f"{key}= is missing: name a run")
        found = self.catalog.runs().get(name)
        if found is None:
            raise MissingError(f"{key}={name}: no such run in the log folder")
        return found

    def file(self, run: Run, file: str | None, key: str = "file") -> RunFile:
        """A recording of a run by its name; only what the catalog found is ever opened.

        Raises:
            MissingError: There is none.
            OutsideError: It lies outside of the log folder.
            UsageError: No name is given.
        """
        if file is None:
            raise UsageError(f"{key}= is missing: name a recording of {run.name}")
        for one in run.recordings:
            if one.file == file:
                if not is_inside(one.path, run.root):
                    raise OutsideError(f"{key}={file!r} lies outside of the log folder")
                return one
        if "\0" in file or not is_inside(run.folder / file, run.root):
            raise OutsideError(f"{key}={file!r} lies outside of the log folder")
        raise MissingError(f"{key}={file}: no such recording in {run.name}")

    def open(self, run: Run, one: RunFile) -> RecordingView:
        """A recording, analysed.

        Raises:
            MissingError: It is gone, or cannot be read.
            FileFormatError: It is damaged, or something else.
        """
        try:
            return self._subject(run, one)
        except FileNotFoundError as error:
            raise MissingError(f"{one.file}: it is gone") from error
        except OSError as error:
            raise MissingError(f"{one.file}: {reason(error)}") from error
        except FileFormatError as error:
            raise FileFormatError(reason(error).replace(str(one.path), one.file)) from error

    def _subject(self, run: Run, one: RunFile) -> RecordingView:
        with self._own(one):
            found = self._subjects.get(one.key)
            if found is None:
                with self._noting(one):
                    recording = read_recording(one.path, calls=True)
                    analysis = analyze(recording.timeline, book=recording.book, name=one.name, path=str(one.path))
                    found = RecordingView(run.name, one.file, one.name, analysis, recording.calls)
                self._subjects[one.key] = found
            self._subjects.move_to_end(one.key)
        self._trim()
        return found

    @contextmanager
    def _log(self, one: RunFile) -> Iterator[ColumnLog]:
        """A live log, read as far as it is written now."""
        path = str(one.path)
        with self._own(one):
            log = self._logs.pop(path, None) or ColumnLog(one.path)
            with self._noting(one):
                log.read()
            self._logs[path] = log
            yield log
        self._trim()

    @contextmanager
    def _own(self, one: RunFile) -> Iterator[None]:
        """One reader of a file at a time; others of other files go on."""
        with self._lock:
            lock = self._locks.setdefault(str(one.path), threading.Lock())
        with lock:
            yield

    @contextmanager
    def _noting(self, one: RunFile) -> Iterator[None]:
        try:
            yield
        except (TbmemError, OSError) as error:
            self._errors[one.key] = reason(error)
            raise
        except Exception as error:
            # a file that nobody thought of is an item with its error, not a broken page
            _logger.exception("%s", one.path)
            self._errors[one.key] = f"cannot be analysed: {type(error).__name__}: {reason(error)}"
            raise FileFormatError(f"{one.file}: {self._errors[one.key]}") from error
        self._errors.pop(one.key, None)

    def _trim(self) -> None:
        """Let go of what was used longest ago."""
        with self._lock:
            _drop(self._subjects, lambda one: len(one.analysis.timeline), _MOST_ROWS, _MOST_SUBJECTS)
            _drop(self._logs, lambda one: one.rows, _MOST_LOG_ROWS, _MOST_LOGS)

    def status(self, logs: Sequence[RunFile]) -> RunStatus:
        """From the first and the last lines of the logs alone: five hundred runs are listed at once."""
        return run_status([_looked_at(self._edge(one), one) for one in logs], self._now())

    def _edge(self, one: RunFile) -> RunState:
        """What the header and the last lines of a log say, and nothing of its devices."""
        known = self._edges.get(str(one.path))
        if known is None or known[0] != one.key:
            known = self._edges[str(one.path)] = one.key, _edge_of(one)
        return known[1]

    def file_item(self, one: RunFile, error: str | None = None) -> FileItem:
        """A file as plain values."""
        return {
            "file": one.file,
            "name": one.name,
            "kind": one.kind,
            "rank": one.rank,
            "bytes": one.bytes,
            "changed": one.changed_ns / 1e9,
            "error": error or self._errors.get(one.key),
        }

    def logged(self, run: Run) -> LoggedRun:
        """A run from its logs; one that cannot be read is an error beside the others."""
        key = (run.version, len(self._errors))
        with self._lock:
            kept = self._logged.get(run.name)
        if kept is not None and kept[0] == key:
            found = kept[1]
            for state, one in zip(found.states, found.logs, strict=True):
                _looked_at(state, one)
            return found
        found = self._read_logs(run)
        with self._lock:
            self._logged[run.name] = (run.version, len(self._errors)), found
            self._logged.move_to_end(run.name)
            if len(self._logged) > _KEPT_RUNS:
                self._logged.popitem(last=False)
        return found

    def _read_logs(self, run: Run) -> LoggedRun:
        states: list[tuple[RunState, RunFile]] = []
        series: list[DeviceSeries] = []
        windows: list[Mapping[str, Any]] = []
        findings: list[Finding] = []
        errors: list[FileItem] = []
        notes: list[str] = []
        for one in run.of(LOG):
            try:
                with self._log(one) as log:
                    own = [DeviceSeries(*device) for device in log.devices()]
                    rest = replace(log.rest, headers=[*log.rest.headers], findings=[*log.rest.findings])
                    state = _state(rest, log.devices(), own)
            except (TbmemError, OSError, ArithmeticError, LookupError, TypeError, ValueError) as error:
                # whatever stands in a log, the others are shown
                errors.append(self.file_item(one, reason(error).replace(str(one.path), one.file)))
                continue
            states.append((_looked_at(state, one), one))
            series += own
            windows += [{**window, "rank": state.rank} for window in rest.windows if _has_steps(window)]
            findings += [finding for finding in rest.findings if isinstance(finding.last_step, int)]
            notes += _notes(rest, state.rank)
        states.sort(key=lambda pair: pair[0].rank)
        broken = [self.file_item(one) for one in run.recordings if one.key in self._errors]
        return LoggedRun(
            run.name,
            [state for state, _ in states],
            series,
            windows,
            sorted(findings, key=lambda one: one.last_step),
            [*errors, *broken],
            [one.file for one in run.recordings],
            notes,
            [one for _, one in states],
        )


def _state(log: MonitorLog, devices: Sequence[DeviceColumns], series: Sequence[DeviceSeries]) -> RunState:
    state = RunState()
    state.add(replace(log, headers=log.headers[-1:], windows=[]))
    for device, one in zip(devices, series, strict=True):
        state.add(MonitorLog(rows=sample_rows(device, _telling(one))))
    return state


def _has_steps(window: Mapping[str, Any]) -> bool:
    return all(isinstance(window.get(key), int) for key in ("first_step", "last_step"))


def _notes(log: MonitorLog, rank: int) -> list[str]:
    notes = []
    if log.damaged_lines:
        notes.append(f"Rank {rank}: {log.damaged_lines} lines of the log could not be read.")
    if len(log.headers) > 1:
        notes.append(f"Rank {rank}: the run was begun or resumed {len(log.headers)} times.")
    return notes


def _looked_at(state: RunState, one: RunFile) -> RunState:
    """The same, with whether its process is there; what a process that is gone wrote last is read first."""
    if state.end is None and state.signal is None:
        state.is_alive = is_alive(state.header.get("process") or {})
        if state.is_alive is False:
            last = _last_lines(one.path)
            state.add(MonitorLog(end=last.end, signal=last.signal))
    return state


def _edge_of(one: RunFile) -> RunState:
    state = RunState()
    try:
        with open(one.path, "rb") as file:
            state.add(_piece(_header_line(file)))
    except (OSError, ValueError):
        return state
    last = _last_lines(one.path)
    last.headers.clear()
    state.add(last)
    return state


def _last_lines(path: Path) -> MonitorLog:
    """The last lines of a log; half a line, the end of a long one, says nothing."""
    try:
        with open(path, "rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _TAIL, 0))
            return _piece(*file.read().rstrip(b"\n").split(b"\n")[-_LAST_LINES:])
    except OSError:
        return MonitorLog()


def _header_line(file: BinaryIO) -> bytes:
    """The last header: a log may have been gone on with."""
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        begin = max(content.rfind(_HEADER), 0)
        end = content.find(b"\n", begin)
        return bytes(content[begin : end if end >= 0 else len(content)])


def _piece(*lines: bytes) -> MonitorLog:
    piece = MonitorLog()
    for line in lines:
        take_line(line, piece)
    return piece


def _drop(kept: OrderedDict[_Name, _Value], size: Callable[[_Value], int], most: int, count: int) -> None:
    total = sum(map(size, kept.values()))
    while len(kept) > 1 and (total > most or len(kept) > count):
        _, gone = kept.popitem(last=False)
        total -= size(gone)


def reason(error: BaseException) -> str:
    """An error in one line, without the folder's path in front."""
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read: {error.strerror}"
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _telling(one: DeviceSeries) -> I64:
    """Rows that tell where a run stands: of a long one the extremes of each stretch, the first and the last."""
    count = len(one.columns["step"])
    if count <= _STATE_ROWS:
        return np.arange(count)
    level = peak_levels(one.device, one.columns)
    low = np.nan_to_num(one.columns["allocated"])
    stretch = even_stretches(count, _STATE_ROWS // 4)
    return np.unique(np.concatenate([[0, count - 1], extremes(level, stretch), extremes(low, stretch)]))
