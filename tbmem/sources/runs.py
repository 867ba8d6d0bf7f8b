"""A path goes in; the runs below it, and the pieces of their live logs as they are written, come out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tbmem.errors import FileFormatError, UsageError
from tbmem.model import files
from tbmem.model.monitor_log import MonitorLog, take_line

_CHUNK = 1 << 20


class FollowedLog:
    """A live log that may still be written.

    Args:
        path: The ``monitor.jsonl``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position = 0
        self._rest = b""
        self._understood = self._damaged = 0

    def read(self) -> Iterator[MonitorLog]:
        """What was written since the last call, in pieces; a header begins a piece, a line half written waits.

        Raises:
            FileFormatError: Not one line is a monitor log's.
            OSError: The file cannot be read.
        """
        with open(self.path, "rb") as file:
            if file.seek(0, os.SEEK_END) < self._position:
                self._position, self._rest = 0, b""  # it was replaced
            file.seek(self._position)
            while chunk := file.read(_CHUNK):
                self._position += len(chunk)
                *lines, self._rest = (self._rest + chunk).split(b"\n")
                yield from self._pieces(lines)
        if self._damaged and not self._understood:
            raise FileFormatError(f"{self.path}: not a monitor log of tbmem")

    def _pieces(self, lines: list[bytes]) -> Iterator[MonitorLog]:
        piece = MonitorLog()
        for line in lines:
            taken = MonitorLog()
            if not take_line(line, taken):
                self._damaged += 1
                continue
            self._understood += 1
            if taken.headers:
                yield piece
                piece = taken
            else:
                piece.rows += taken.rows
                piece.findings += taken.findings
                piece.windows += taken.windows
                piece.end = taken.end or piece.end
                piece.signal = taken.signal or piece.signal
        yield piece


@dataclass(slots=True, kw_only=True)
class RunFiles:
    """A run and the live logs of its ranks."""

    name: str
    """Relative to the folder that was searched."""
    path: Path
    logs: tuple[Path, ...]

    @property
    def changed(self) -> float:
        """Unix time of the last write, in seconds."""
        return max((log.stat().st_mtime for log in self.logs if log.exists()), default=0.0)


def find_runs(path: str | os.PathLike[str]) -> list[RunFiles]:
    """The runs that a path means, oldest first.

    Args:
        path: A live log, a run folder, or a folder of runs.

    Raises:
        UsageError: There is no run.
    """
    place = Path(path).expanduser()
    if place.is_file():
        return [RunFiles(name=place.name, path=place, logs=(place,))]
    if not place.is_dir():
        raise UsageError(f"{place}: no such file or folder")
    logs: dict[Path, list[Path]] = {}
    for log in sorted(place.rglob(files.MONITOR_LOG)):
        logs.setdefault(_run_of(log, place), []).append(log)
    if not logs:
        raise UsageError(f"{place}: no run of tbmem: there is no {files.MONITOR_LOG} below it")
    runs = [RunFiles(name=_name(run, place), path=run, logs=tuple(found)) for run, found in logs.items()]
    return sorted(runs, key=lambda run: run.changed)


def _run_of(log: Path, place: Path) -> Path:
    """The run folder of a log; ranks have sub-folders of it."""
    folder = log.parents[len(Path(files.MONITOR_LOG).parts) - 1]
    is_rank = folder.name.startswith("rank") and folder.name[4:].isdigit()
    return folder.parent if is_rank and folder != place else folder


def _name(run: Path, place: Path) -> str:
    return str(run.relative_to(place)) if run != place else run.resolve().name
