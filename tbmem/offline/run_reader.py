"""Names of runs and files go in; logs and recordings that were read come out, each broken one an error of its own."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tbmem.analysis.comparison import RunFigures
from tbmem.analysis.run_state import RunState
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

_STATE_ROWS = 4000
_KEPT_RUNS = 32
_SILENT_SECONDS = 60.0
_TAIL = 64 << 10


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
        self._known_ends: dict[Key, bool] = {}
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

    def status(self, logs: Sequence[RunFile]) -> str:
        """From the ends of the logs alone: five hundred runs are listed at once."""
        if not logs:
            return "files"
        open_logs = [one for one in logs if not self._ended(one)]
        if not open_logs:
            return "ended"
        age = self._now() - max(one.changed_ns for one in open_logs) / 1e9
        return "silent" if age > _SILENT_SECONDS else "running"

    def _ended(self, one: RunFile) -> bool:
        if one.key not in self._known_ends:
            self._known_ends[one.key] = _has_ended(one)
        return self._known_ends[one.key]

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
            return kept[1]
        found = self._read_logs(run)
        with self._lock:
            self._logged[run.name] = (run.version, len(self.shelf.errors)), found
            self._logged.move_to_end(run.name)
            if len(self._logged) > _KEPT_RUNS:
                self._logged.popitem(last=False)
        return found

    def _read_logs(self, run: Run) -> LoggedRun:
        states: list[RunState] = []
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
            states.append(state)
            series += own
            windows += [{**window, "rank": state.rank} for window in log.windows if _has_steps(window)]
            findings += [finding for finding in log.findings if isinstance(finding.last_step, int)]
            notes += _notes(log, state.rank)
        broken = [self.file_item(one) for one in run.recordings if self.shelf.error(one)]
        return LoggedRun(
            run.name,
            sorted(states, key=lambda state: state.rank),
            series,
            windows,
            sorted(findings, key=lambda one: one.last_step),
            [*errors, *broken],
            [one.file for one in run.recordings],
            notes,
        )

    def figures(self, run: Run) -> dict[str, RunFigures]:
        """Highest and last level of each device by the logs."""
        found: dict[str, RunFigures] = {}
        for state in self.logged(run).states:
            for track in state.tracks:
                if track.peak is None or track.last is None:
                    continue
                before = found.get(track.device)
                if before is None or track.peak.bytes > before.peak_bytes:
                    found[track.device] = RunFigures(track.device, track.peak.bytes, track.last.allocated)
        return found


def _state(log: LogNow, devices: Sequence[DeviceSeries]) -> RunState:
    state = RunState()
    state.add(MonitorLog(headers=list(log.headers[-1:]), findings=list(log.findings), end=log.end))
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


def _has_ended(one: RunFile) -> bool:
    """Whether the last line of a log says that the run has ended."""
    try:
        with open(one.path, "rb") as file:
            file.seek(max(one.bytes - _TAIL, 0))
            last = file.read().rstrip(b"\n").rpartition(b"\n")[2]
    except OSError:
        return False
    log = MonitorLog()
    take_line(last, log)  # half a line, or the end of one that is longer than what was read, says nothing
    return log.has_ended


def _telling(one: DeviceSeries) -> I64:
    """Rows that tell where a run stands: of a long one the extremes of each stretch, the first and the last."""
    count = len(one.columns["step"])
    if count <= _STATE_ROWS:
        return np.arange(count)
    level = np.nan_to_num(one.line("peak"))
    low = np.nan_to_num(one.columns["allocated"])
    stretch = even_stretches(count, _STATE_ROWS // 4)
    return np.unique(np.concatenate([[0, count - 1], extremes(level, stretch), extremes(low, stretch)]))
