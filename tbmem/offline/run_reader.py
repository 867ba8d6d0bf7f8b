"""Names of runs and files go in; logs and recordings that were read come out, each broken one an error of its own."""

from __future__ import annotations

import mmap
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tbmem.analysis.run_state import RunState
from tbmem.analysis.run_status import RunStatus, run_status
from tbmem.analysis.thinning import even_stretches, extremes
from tbmem.errors import FileFormatError, TbmemError, UsageError
from tbmem.model.columns import I64
from tbmem.model.finding import Finding
from tbmem.model.monitor_log import MonitorLog, take_line
from tbmem.offline.asked import MissingError, OutsideError
from tbmem.offline.catalog import LOG, Catalog, Key, Run, RunFile, is_inside
from tbmem.offline.shelf import LogNow, Shelf, reason
from tbmem.present.views.logged import DeviceSeries, LoggedRun
from tbmem.present.views.runs import FileItem
from tbmem.present.views.subject import Subject
from tbmem.sources.log_columns import sample_rows
from tbmem.sources.processes import is_alive

_STATE_ROWS = 4000
_KEPT_RUNS = 32
_TAIL = 64 << 10
_LAST_LINES = 8
_HEADER = b'{"type":"header"'


class RunReader:
    """Reads what is asked for, once.

    Args:
        catalog: The runs.
        now: Unix time in seconds.
    """

    def __init__(self, catalog: Catalog, now: Callable[[], float]) -> None:
        self.catalog = catalog
        self.shelf = Shelf()
        self._now = now
        self._lock = threading.Lock()
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

    def open(self, run: Run, one: RunFile) -> Subject:
        """A recording, analysed.

        Raises:
            MissingError: It is gone, or cannot be read.
            FileFormatError: It is damaged, or something else.
        """
        try:
            return self.shelf.subject(run, one)
        except FileNotFoundError as error:
            raise MissingError(f"{one.file}: it is gone") from error
        except OSError as error:
            raise MissingError(f"{one.file}: {reason(error)}") from error
        except FileFormatError as error:
            raise FileFormatError(reason(error).replace(str(one.path), one.file)) from error

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
        """A file as plain values.

        Args:
            one: The file.
            error: Why it cannot be read; by default what is known of it.
        """
        return {
            "file": one.file,
            "name": one.name,
            "kind": one.kind,
            "rank": one.rank,
            "bytes": one.bytes,
            "changed": one.changed_ns / 1e9,
            "error": error or self.shelf.error(one),
        }

    def logged(self, run: Run) -> LoggedRun:
        """A run from its logs; one that cannot be read is an error beside the others."""
        key = (run.version, len(self.shelf.errors))
        with self._lock:
            kept = self._logged.get(run.name)
        if kept is not None and kept[0] == key:
            found = kept[1]
            for state, one in zip(found.states, found.logs, strict=True):
                _looked_at(state, one)
            return found
        found = self._read_logs(run)
        with self._lock:
            self._logged[run.name] = (run.version, len(self.shelf.errors)), found
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
                log = self.shelf.log(one)
                own = [DeviceSeries(device.rank, device.device, device.columns) for device in log.devices]
                state = _state(log, own)
            except (TbmemError, OSError, ArithmeticError, LookupError, TypeError, ValueError) as error:
                # whatever stands in a log, the others are shown
                errors.append(self.file_item(one, reason(error).replace(str(one.path), one.file)))
                continue
            states.append((_looked_at(state, one), one))
            series += own
            windows += [{**window, "rank": state.rank} for window in log.windows if _has_steps(window)]
            findings += [finding for finding in log.findings if isinstance(finding.last_step, int)]
            notes += _notes(log, state.rank)
        states.sort(key=lambda pair: pair[0].rank)
        broken = [self.file_item(one) for one in run.recordings if self.shelf.error(one)]
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


def _state(log: LogNow, devices: Sequence[DeviceSeries]) -> RunState:
    state = RunState()
    piece = MonitorLog(headers=list(log.headers[-1:]), findings=list(log.findings), end=log.end, signal=log.signal)
    state.add(piece)
    for device, one in zip(log.devices, devices, strict=True):
        state.add(MonitorLog(rows=sample_rows(device, _telling(one))))
    return state


def _has_steps(window: Mapping[str, Any]) -> bool:
    return all(isinstance(window.get(key), int) for key in ("first_step", "last_step"))


def _notes(log: LogNow, rank: int) -> list[str]:
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


def _telling(one: DeviceSeries) -> I64:
    """Rows that tell where a run stands: of a long one the extremes of each stretch, the first and the last."""
    count = len(one.columns["step"])
    if count <= _STATE_ROWS:
        return np.arange(count)
    level = one.reached()
    low = np.nan_to_num(one.columns["allocated"])
    stretch = even_stretches(count, _STATE_ROWS // 4)
    return np.unique(np.concatenate([[0, count - 1], extremes(level, stretch), extremes(low, stretch)]))
