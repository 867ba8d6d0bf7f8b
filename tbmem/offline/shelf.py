"""Files of runs go in; logs that are read on and analysed recordings come out, kept while their files do not change."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from tbmem.analysis.analyzer import analyze
from tbmem.errors import FileFormatError, TbmemError
from tbmem.model.finding import Finding
from tbmem.offline.catalog import Key, Run, RunFile
from tbmem.present.views.subject import Subject
from tbmem.sources.log_columns import ColumnLog, DeviceColumns
from tbmem.sources.recording import read_recording

_log = logging.getLogger(__name__)
_MOST_ROWS = 3_000_000
_MOST_SUBJECTS = 24
_MOST_LOG_ROWS = 4_000_000
_Name = TypeVar("_Name")
_Value = TypeVar("_Value")


class LogNow(NamedTuple):
    """A live log as far as it was written when it was read."""

    devices: tuple[DeviceColumns, ...]
    headers: tuple[dict[str, Any], ...]
    findings: tuple[Finding, ...]
    windows: tuple[dict[str, Any], ...]
    end: dict[str, Any] | None
    signal: dict[str, Any] | None
    damaged_lines: int


class Shelf:
    """What was read, and what could not be."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._subjects: OrderedDict[Key, Subject] = OrderedDict()
        self._logs: OrderedDict[str, ColumnLog] = OrderedDict()
        self._errors: dict[Key, str] = {}

    @property
    def errors(self) -> Mapping[Key, str]:
        """Files that could not be read, and why."""
        return self._errors

    def error(self, one: RunFile) -> str | None:
        """Why a file could not be read; ``None`` if it could, or was not tried."""
        return self._errors.get(one.key)

    def log(self, one: RunFile) -> LogNow:
        """A live log, read as far as it is written now.

        Raises:
            FileFormatError: It is something else.
            OSError: It cannot be read.
        """
        with self._own(str(one.path)), self._noting(one):
            log = self._logs.get(str(one.path)) or ColumnLog(one.path)
            try:
                log.read()
            except BaseException:
                self._logs.pop(str(one.path), None)
                raise
            self._logs[str(one.path)] = log
            self._logs.move_to_end(str(one.path))
            rest = log.rest
            now = LogNow(
                log.devices(),
                tuple(rest.headers),
                tuple(rest.findings),
                tuple(rest.windows),
                rest.end,
                rest.signal,
                rest.damaged_lines,
            )
        self._trim()
        return now

    def subject(self, run: Run, one: RunFile) -> Subject:
        """A recording, analysed.

        Raises:
            FileFormatError: It is damaged, or something else.
            OSError: It cannot be read.
        """
        with self._own(str(one.path)):
            found = self._subjects.get(one.key)
            if found is None:
                with self._noting(one):
                    found = _read(run, one)
                self._subjects[one.key] = found
            self._subjects.move_to_end(one.key)
        self._trim()
        return found

    @contextmanager
    def _own(self, path: str) -> Iterator[None]:
        """One reader of a file at a time; others of other files go on."""
        with self._lock:
            lock = self._locks.setdefault(path, threading.Lock())
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
            _log.exception("%s", one.path)
            self._errors[one.key] = f"cannot be analysed: {type(error).__name__}: {reason(error)}"
            raise FileFormatError(f"{one.file}: {self._errors[one.key]}") from error
        self._errors.pop(one.key, None)

    def _trim(self) -> None:
        """Let go of what was used longest ago."""
        with self._lock:
            _drop(self._subjects, lambda one: len(one.analysis.timeline), _MOST_ROWS, _MOST_SUBJECTS)
            _drop(self._logs, lambda one: one.rows, _MOST_LOG_ROWS, 2000)


def _drop(kept: OrderedDict[_Name, _Value], size: Callable[[_Value], int], most: int, count: int) -> None:
    total = sum(map(size, kept.values()))
    while len(kept) > 1 and (total > most or len(kept) > count):
        _, gone = kept.popitem(last=False)
        total -= size(gone)


def _read(run: Run, one: RunFile) -> Subject:
    recording = read_recording(one.path, calls=True)
    analysis = analyze(recording.timeline, book=recording.book, name=one.name, path=str(one.path))
    return Subject(run.name, one.file, one.name, analysis, recording.calls)


def reason(error: BaseException) -> str:
    """An error in one line, without the folder's path in front."""
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read: {error.strerror}"
    return str(error).splitlines()[0] if str(error) else type(error).__name__
