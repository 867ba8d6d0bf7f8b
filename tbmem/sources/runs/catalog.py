"""Finds the runs of log folders, with all files that concern memory, and only files that lie inside of them.

Nothing is opened here but the names: the parts of a run's name are folders, as TensorBoard has it.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tbmem.errors import UsageError
from tbmem.model.files import MONITOR_LOG, PLUGIN_FOLDER
from tbmem.sources.runs.recording_files import IN_FOLDERS, short_names

LOG, ESTIMATE, TRACE, SNAPSHOT, TIMELINE = "log", "estimate", "trace", "snapshot", "timeline"
_RANK = re.compile(r"rank[_\-]?(\d+)", re.IGNORECASE)
_RANK_FOLDER = re.compile(r"rank\d+")
_ESTIMATE_SUFFIX = "estimate.json"
_FRESH_SECONDS = 1.0
_LOOK_SECONDS = 5.0
Key = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Root:
    """A log folder."""

    path: Path
    name: str = ""
    """First part of the names of its runs; empty where there is one log folder only."""
    own: str = "."
    """Name of a run that is the log folder itself."""


@dataclass(frozen=True, slots=True)
class RunFile:
    """One file of a run, as it was when it was found."""

    path: Path
    file: str
    """Relative to the run's folder, with ``/``."""
    kind: str
    rank: int | None
    bytes: int
    changed_ns: int
    name: str = ""

    @property
    def key(self) -> Key:
        """Another one when the file has changed."""
        return str(self.path), self.changed_ns, self.bytes


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a log folder."""

    name: str
    folder: Path
    root: Path
    """The log folder."""
    files: tuple[RunFile, ...]

    def of(self, *kinds: str) -> list[RunFile]:
        """Files of some kinds."""
        return [one for one in self.files if one.kind in kinds]

    @property
    def recordings(self) -> list[RunFile]:
        """Traces, snapshots and timelines."""
        return self.of(TRACE, SNAPSHOT, TIMELINE)

    @property
    def changed(self) -> float:
        """Unix time of the last write."""
        return max((one.changed_ns for one in self.files), default=0) / 1e9

    @property
    def version(self) -> str:
        """Another one when any file has changed, come or gone."""
        return f"{hash(tuple(one.key for one in self.files)) & 0xFFFFFFFFFFFF:012x}"


@dataclass(slots=True)
class Catalog:
    """The runs of some log folders.

    Args:
        roots: The log folders.
        clock: Seconds; a catalog is read anew at most once a second.
    """

    roots: Sequence[Root]
    clock: Callable[[], float] = time.monotonic
    _runs: Mapping[str, Run] = field(default_factory=dict)
    _read_at: float | None = None
    _any: bool = False
    _looked_at: float | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def runs(self) -> Mapping[str, Run]:
        """All runs by name, that which changed last first."""
        with self._lock:
            now = self.clock()
            if self._read_at is None or now - self._read_at >= _FRESH_SECONDS:
                found = [run for root in self.roots for run in _runs_of(root)]
                found.sort(key=lambda run: (-run.changed, run.name))
                self._runs, self._read_at = {run.name: run for run in found}, self.clock()
            return self._runs

    def has_any(self) -> bool:
        """Whether there is any run: once there was one it stays so; until then looked for every few seconds."""
        with self._lock:
            now = self.clock()
            if not self._any and (self._looked_at is None or now - self._looked_at >= _LOOK_SECONDS):
                self._any = any(True for root in self.roots for _ in _files(root.path))
                self._looked_at = self.clock()
            return self._any


def is_inside(path: Path, folder: Path) -> bool:
    """Whether a path, all links followed, lies in a folder."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _runs_of(root: Root) -> list[Run]:
    """Recordings belong to the nearest folder above them that has a live log, else to the one they lie in."""
    found = list(_files(root.path))
    homes = {run_folder(path, root.path) for path, kind in found if kind == LOG}
    by_run: dict[Path, list[tuple[Path, str]]] = {}
    for path, kind in found:
        home = run_folder(path, root.path)
        above = next((one for one in (home, *home.parents) if one in homes), home)
        by_run.setdefault(above if above.is_relative_to(root.path) else home, []).append((path, kind))
    return [_run(root, folder, files) for folder, files in by_run.items()]


def run_folder(path: Path, root: Path | None = None) -> Path:
    """Folder of the run that a file belongs to: above the plugin's, and above that of a rank.

    Args:
        path: The file.
        root: The log folder, which is a run even if it is called like a rank's.
    """
    folder = path.parent
    if folder.as_posix().endswith("/" + PLUGIN_FOLDER):
        folder = folder.parents[len(PurePosixPath(PLUGIN_FOLDER).parts) - 1]
    return folder.parent if _RANK_FOLDER.fullmatch(folder.name) and folder != root else folder


def _files(folder: Path) -> Iterator[tuple[Path, str]]:
    """Files that concern memory, with their kinds; links to folders are not followed, nor links that lead out."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(place, name)
            kind = _kind(path)
            if kind and (not path.is_symlink() or is_inside(path, folder)):
                yield path, kind


def _kind(path: Path) -> str:
    name = path.name.lower()
    if name.endswith(_ESTIMATE_SUFFIX):
        return ESTIMATE
    if name == PurePosixPath(MONITOR_LOG).name:
        return LOG if path.as_posix().endswith("/" + MONITOR_LOG) else ""
    if not name.endswith(IN_FOLDERS) or name.startswith("."):
        return ""
    if name.endswith(".npz"):
        return TIMELINE
    return SNAPSHOT if name.endswith((".pickle", ".pkl")) else TRACE


def _run(root: Root, folder: Path, found: Sequence[tuple[Path, str]]) -> Run:
    recorded = [path for path, kind in found if kind not in (LOG, ESTIMATE)]
    names = dict(zip(recorded, short_names(recorded), strict=True))
    files = []
    for path, kind in found:
        try:
            state = path.stat()
        except OSError:
            continue  # it vanished while we looked
        file = path.relative_to(folder).as_posix()
        ranks = _RANK.findall(file)
        rank = int(ranks[-1]) if ranks else None
        name = names.get(path, path.name)
        files.append(RunFile(path, file, kind, rank, state.st_size, state.st_mtime_ns, name))
    relative = folder.relative_to(root.path).as_posix()
    own = root.own if relative == "." else relative
    return Run(f"{root.name}/{own}" if root.name else own, folder, root.path, tuple(files))


def roots_of(logdir: str, logdir_spec: str = "") -> tuple[Root, ...]:
    """Log folders as they are given to TensorBoard.

    Args:
        logdir: As typed: relative, or with ``~``; empty under ``--logdir_spec``.
        logdir_spec: ``name:path`` or ``path``, several with commas between them.
    """
    if logdir:
        return () if "://" in logdir else (Root(_absolute(logdir)),)
    roots = []
    for part in filter(None, logdir_spec.split(",")):
        if "://" in part:
            continue  # in a cloud: TensorBoard reads event files there, we read local files only
        name, colon, path = part.partition(":")
        has_name = bool(colon) and not name.startswith("/") and not path.startswith("//")
        roots.append(Root(_absolute(path), name) if has_name else Root(_absolute(part)))
    return tuple(roots)


def _absolute(path: str) -> Path:
    return Path(os.path.abspath(os.path.expanduser(path)))


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
    for log in sorted(place.rglob(MONITOR_LOG)):
        logs.setdefault(run_folder(log, place), []).append(log)
    if not logs:
        raise UsageError(f"{place}: no run of tbmem: there is no {MONITOR_LOG} below it")
    runs = [RunFiles(name=_name(run, place), path=run, logs=tuple(found)) for run, found in logs.items()]
    return sorted(runs, key=lambda run: run.changed)


def _name(run: Path, place: Path) -> str:
    return str(run.relative_to(place)) if run != place else run.resolve().name
