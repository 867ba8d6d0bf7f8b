"""Reads and caches logs and recordings of runs; a file that cannot be read becomes an error beside the others."""

from __future__ import annotations

import itertools
import logging
import math
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tbmem.analysis.recordings.analyzer import analyze
from tbmem.analysis.runs.run_status import RankState, RunStatus, run_status, skipped_note
from tbmem.errors import FileFormatError, TbmemError, UsageError, first_line
from tbmem.model.finding import Finding
from tbmem.model.monitor_log import MonitorLog, gap_notes
from tbmem.model.progress import CancelledError, Work, progress, working
from tbmem.offline.queries.followed_rank import FollowedRank
from tbmem.present.views.live import DeviceSeries, LoggedRun
from tbmem.present.views.recording_view import RecordingView
from tbmem.present.views.run_schema import FileItem
from tbmem.sources.recording import books_beside, read_recording
from tbmem.sources.runs.catalog import LOG, Catalog, Key, Run, RunFile, is_inside
from tbmem.sources.runs.log_edges import LogEdges, last_lines
from tbmem.sources.runs.process_identity import is_alive

_logger = logging.getLogger(__name__)
_MAX_ROWS = 3_000_000
_MAX_SUBJECTS = 24
_MAX_LOG_ROWS = 4_000_000
_MAX_LOGS = 2000
_MAX_RUNS = 32


class MissingError(UsageError):
    """The requested view, run or file does not exist (any more)."""


class OutsideError(UsageError):
    """The requested file lies outside of the log folder."""


class RunReader:
    """Reads logs and recordings once, as long as they do not change.

    Methods raise a UsageError if a name is missing, a MissingError if there is no such run or file, or none to read,
    an OutsideError for a file outside of the log folder, and a FileFormatError for one that is damaged.
    """

    def __init__(self, catalog: Catalog, now: Callable[[], float]) -> None:
        self.catalog = catalog
        self._now = now
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._subjects: OrderedDict[Key, RecordingView] = OrderedDict()
        self._logs: OrderedDict[str, FollowedRank] = OrderedDict()
        self._errors: dict[Key, str] = {}
        self._edges: dict[str, tuple[LogEdges, Key, RankState]] = {}
        self._logged: OrderedDict[str, tuple[tuple[str, int], LoggedRun]] = OrderedDict()
        self._work: dict[int, Work] = {}
        self._numbers = itertools.count()
        self._cancelled: Counter[str] = Counter()

    def work(self) -> dict[int, Work]:
        """The files that are being read, by number."""
        with self._lock:
            return dict(self._work)

    def cancel(self, number: int) -> None:
        """Stop reading a file, for all that wait for it; nothing, if it has been read."""
        if (work := self.work().get(number)) is not None:
            work.is_cancelled = True

    def run(self, name: str | None, key: str = "run") -> Run:
        """The run of a name, given by the parameter ``key``."""
        if name is None:
            raise UsageError(f"{key}= is missing: name a run")
        run = self.catalog.runs().get(name)
        if run is None:
            raise MissingError(f"{key}={name}: no such run in the log folder")
        return run

    def recording(self, run: Run, file: str | None) -> RecordingView:
        """A recording of a run by name, analyzed; only files of the catalog are ever opened."""
        if file is None:
            raise UsageError(f"file= is missing: name a recording of {run.name}")
        recording = next((recording for recording in run.recordings if recording.file == file), None)
        path = run.folder / file if recording is None else recording.path
        if "\0" in file or not is_inside(path, run.root):
            raise OutsideError(f"file={file!r} lies outside of the log folder")
        if recording is None:
            raise MissingError(f"file={file}: no such recording in {run.name}")
        return self.open(run, recording)

    def open(self, run: Run, file: RunFile) -> RecordingView:
        """A recording of a run, analyzed."""
        try:
            with self._reading(file):
                subject = self._subjects.get(file.key)
                if subject is None:
                    with self._noting_errors(file):
                        self._check_books(run, file)
                        recording = read_recording(file.path, calls=True)
                        analysis = analyze(recording.timeline, book=recording.book, name=file.name, path=str(file.path))
                        subject = RecordingView(run.name, file.file, file.name, analysis, recording.calls)
                    self._subjects[file.key] = subject
                self._subjects.move_to_end(file.key)
        except OSError as error:
            gone = isinstance(error, FileNotFoundError)
            raise MissingError(f"{file.file}: {'it is gone' if gone else reason(error)}") from error
        except FileFormatError as error:
            raise FileFormatError(reason(error).replace(str(file.path), file.file)) from error
        self._trim()
        return subject

    @staticmethod
    def _check_books(run: Run, file: RunFile) -> None:
        """Refuse an address book that is a link out of the log folder, as the catalog leaves out such recordings."""
        for book in books_beside(file.path):
            if not is_inside(book, run.root):
                raise FileFormatError(f"{file.file}: its address book {book.name} is a link out of the log folder")

    def _read_log(self, file: RunFile, until: float) -> tuple[FollowedRank, MonitorLog, list[DeviceSeries]]:
        """A live log, read up to its current end or a time: its rank, its records without samples, and the samples."""
        path = str(file.path)
        with self._reading(file):
            log = self._logs[path] = self._logs.pop(path) if path in self._logs else FollowedRank(file.path)
            try:
                with self._noting_errors(file):
                    series = log.read(until)
            except BaseException:
                self._logs.pop(path, None)
                raise
            rest = log.rest
        self._trim()
        return log, rest, series

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        """Allow one reader at a time for each run."""
        with self._lock:
            lock = self._locks.setdefault(name, threading.Lock())
        with lock:
            yield

    @contextmanager
    def _reading(self, file: RunFile) -> Iterator[None]:
        """Allow one reader at a time for each file, followed and perhaps cancelled by another thread."""
        path, number, work = str(file.path), next(self._numbers), Work(file.file)
        with self._lock:
            lock = self._locks.setdefault(path, threading.Lock())
            cancelled = self._cancelled[path]
        with lock:
            # who waited for work that was cancelled does not begin it again
            work.is_cancelled = self._cancelled[path] > cancelled
            with self._lock:
                self._work[number] = work
            try:
                with working(work):
                    progress("reading")
                    yield
            except CancelledError:
                self._cancelled[path] += 1
                raise
            finally:
                with self._lock:
                    del self._work[number]

    @contextmanager
    def _noting_errors(self, file: RunFile) -> Iterator[None]:
        try:
            yield
        except (TbmemError, OSError) as error:
            self._errors[file.key] = reason(error)
            raise
        except Exception as error:
            # an unforeseen file is listed with its error and does not break the page
            _logger.exception("%s", file.path)
            self._errors[file.key] = f"cannot be analysed: {type(error).__name__}: {reason(error)}"
            raise FileFormatError(f"{file.file}: {self._errors[file.key]}") from error
        self._errors.pop(file.key, None)

    def _trim(self) -> None:
        """Drop what was used longest ago beyond the limits."""
        with self._lock:
            _drop(self._subjects, lambda subject: len(subject.analysis.timeline), _MAX_ROWS, _MAX_SUBJECTS)
            _drop(self._logs, lambda log: log.log.rows, _MAX_LOG_ROWS, _MAX_LOGS)

    def status(self, logs: Sequence[RunFile]) -> RunStatus:
        """Status of a run from the first and last lines of its logs, so that hundreds of runs are listed quickly."""
        states = []
        for file in logs:
            edges, key, state = self._edges.get(str(file.path)) or (LogEdges(file.path), None, RankState())
            if key != file.key:
                state = RankState()
                state.add(edges.read())
                self._edges[str(file.path)] = edges, file.key, state
            states.append(_with_liveness(state, file))
        return run_status(states, self._now())

    def file_item(self, file: RunFile, error: str | None = None) -> FileItem:
        """A file as plain values."""
        return {
            "file": file.file,
            "name": file.name,
            "kind": file.kind,
            "rank": file.rank,
            "bytes": file.bytes,
            "changed": file.changed_ns / 1e9,
            "error": error or self._errors.get(file.key),
        }

    def logged(self, run: Run, until: float = math.inf) -> LoggedRun:
        """A run from its logs; a log that cannot be read becomes an error beside the others.

        Args:
            run: The run.
            until: Time of the monotonic clock at which reading may stop, in seconds; who asks again reads on there.
        """
        with self._locked(f"run {run.name}"):  # who asks at the same time waits, and reads nothing twice
            return self._logged_once(run, until)

    def _logged_once(self, run: Run, until: float) -> LoggedRun:
        with self._lock:
            key, logged = self._logged.get(run.name, (None, None))
        if logged is not None and key == (run.version, len(self._errors)):
            for state, file in zip(logged.states, logged.logs, strict=True):
                _with_liveness(state, file)
            return logged
        logged = self._read_run(run, until)
        if logged.unread:
            return logged
        with self._lock:
            self._logged[run.name] = (run.version, len(self._errors)), logged
            self._logged.move_to_end(run.name)
            if len(self._logged) > _MAX_RUNS:
                self._logged.popitem(last=False)
        return logged

    def _read_run(self, run: Run, until: float) -> LoggedRun:
        states: list[tuple[RankState, RunFile]] = []
        series: list[DeviceSeries] = []
        windows: list[Mapping[str, Any]] = []
        findings: list[Finding] = []
        errors: list[FileItem] = []
        notes: list[str] = []
        starts, unread = 0, 0.0
        for file in run.of(LOG):
            try:
                log, rest, devices = self._read_log(file, until)
            except (TbmemError, OSError) as error:
                errors.append(self.file_item(file, reason(error).replace(str(file.path), file.file)))
                continue
            states.append((_with_liveness(log.state, file), file))
            series += devices
            windows += [{**window, "rank": log.state.rank} for window in rest.windows]
            findings += rest.findings
            notes += _notes(rest, log.state.rank)
            unread += log.unread * file.bytes
            starts += len(rest.headers)
        states.sort(key=lambda pair: pair[0].rank)
        broken = [self.file_item(file) for file in run.recordings if file.key in self._errors]
        return LoggedRun(
            run.name,
            states=[state for state, _ in states],
            series=series,
            windows=windows,
            findings=sorted(findings, key=lambda finding: finding.last_step),
            errors=[*errors, *broken],
            recordings=[file.file for file in run.recordings],
            notes=notes,
            logs=[log for _, log in states],
            starts=starts,
            unread=unread / max(sum(log.bytes for _, log in states), 1),
        )


def _notes(log: MonitorLog, rank: int) -> list[str]:
    notes = []
    if log.damaged_lines:
        notes.append(f"Rank {rank}: {skipped_note(log.damaged_lines)}.")
    notes += gap_notes(log.gaps, rank)
    if len(log.headers) > 1:
        notes.append(f"Rank {rank}: the run was begun or resumed {len(log.headers)} times.")
    return notes


def _with_liveness(state: RankState, file: RunFile) -> RankState:
    """The state with whether its process exists; the last lines of a process that is gone are read too."""
    if state.end is None and state.signal is None:
        state.is_alive = is_alive(state.header.get("process") or {})
        if state.is_alive is False:
            last = last_lines(file.path)
            state.add(MonitorLog(end=last.end, signal=last.signal))
    return state


def _drop(cache: OrderedDict[Any, Any], size: Callable[[Any], int], max_size: int, max_count: int) -> None:
    total = sum(map(size, cache.values()))
    while len(cache) > 1 and (total > max_size or len(cache) > max_count):
        total -= size(cache.popitem(last=False)[1])


def reason(error: BaseException) -> str:
    """An error in one line, without the folder's path in front."""
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read: {error.strerror}"
    return first_line(error)
