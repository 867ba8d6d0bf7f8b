"""Finds the runs of log folders and their files, without opening them; run names are paths as in TensorBoard."""

from __future__ import annotations

import contextlib
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from tbmem.errors import UsageError
from tbmem.model.files import MONITOR_LOG, PLUGIN_FOLDER
from tbmem.regular_files import open_regular
from tbmem.sources.runs.recording_files import IN_FOLDERS, current_of, short_names

LOG, ESTIMATE, TRACE, SNAPSHOT, TIMELINE = "log", "estimate", "trace", "snapshot", "timeline"
_RANK = re.compile(r"rank[_\-]?(\d+)", re.IGNORECASE)
_RANK_FOLDER = re.compile(r"rank\d+")
_ESTIMATE_SUFFIX = "estimate.json"
_FRESH_SECONDS = 1.0
_LOOK_SECONDS = 5.0
Key = tuple[str, int, int]


class Root(NamedTuple):
    """A log folder."""

    path: Path
    name: str = ""  # prefix of the names of its runs; empty where there is only one log folder
    own_run: str = "."


class RunFile(NamedTuple):
    """One file of a run, as it was at the time of the search."""

    path: Path
    file: str  # relative to the run's folder, with /
    kind: str
    rank: int | None
    bytes: int
    changed_ns: int
    name: str = ""

    @property
    def key(self) -> Key:
        """Differs once the file has changed."""
        return str(self.path), self.changed_ns, self.bytes


class Run(NamedTuple):
    """One run of a log folder."""

    name: str
    folder: Path
    root: Path
    files: tuple[RunFile, ...]

    def of(self, *kinds: str) -> list[RunFile]:
        """Files of some kinds."""
        return [file for file in self.files if file.kind in kinds]

    @property
    def recordings(self) -> list[RunFile]:
        """Traces, snapshots and timelines."""
        return self.of(TRACE, SNAPSHOT, TIMELINE)

    @property
    def changed(self) -> float:
        """Unix time of the last write."""
        return max((file.changed_ns for file in self.files), default=0) / 1e9

    @property
    def version(self) -> str:
        """Differs once a file was changed, added or removed."""
        return f"{hash(tuple(file.key for file in self.files)) & 0xFFFFFFFFFFFF:012x}"


@dataclass(slots=True)
class Catalog:
    """The runs of some log folders, which are searched at most once a second."""

    roots: Sequence[Root]
    clock: Callable[[], float] = time.monotonic
    _runs: Mapping[str, Run] = field(default_factory=dict)
    _read_at: float = -math.inf
    _any: bool = False
    _looked_at: float = -math.inf
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def runs(self) -> Mapping[str, Run]:
        """All runs by name, the last changed first."""
        with self._lock:
            if self.clock() - self._read_at >= _FRESH_SECONDS:
                runs = [run for root in self.roots for run in _runs_of(root)]
                runs.sort(key=lambda run: (-run.changed, run.name))
                self._runs, self._read_at = {run.name: run for run in runs}, self.clock()
            return self._runs

    def add(self, root: Root) -> None:
        """Search one more log folder."""
        with self._lock:
            self.roots = (*self.roots, root)

    def search_again(self) -> None:
        """Search when the runs are asked for next, however short the last search was ago."""
        with self._lock:
            self._read_at = self._looked_at = -math.inf

    def has_any(self) -> bool:
        """Whether a run was ever found; until then the folders are searched every few seconds."""
        with self._lock:
            if not self._any and self.clock() - self._looked_at >= _LOOK_SECONDS:
                self._any = any(True for root in self.roots for _ in _files(root.path))
                self._looked_at = self.clock()
            return self._any


def is_inside(path: Path, folder: Path) -> bool:
    """Whether a path lies in a folder after following all links."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _runs_of(root: Root) -> list[Run]:
    """Recordings belong to the nearest folder above them with a live log, else to their own folder."""
    files = list(_files(root.path))
    log_folders = {run_folder(path, root.path) for path, kind in files if kind == LOG}
    by_run: dict[Path, list[tuple[Path, str]]] = {}
    for path, kind in files:
        folder = run_folder(path, root.path)
        above = next((parent for parent in (folder, *folder.parents) if parent in log_folders), folder)
        by_run.setdefault(above if above.is_relative_to(root.path) else folder, []).append((path, kind))
    return [_run(root, folder, files) for folder, files in by_run.items()]


def run_folder(path: Path, root: Path | None = None) -> Path:
    """Folder of a file's run: without the plugin's and a rank's sub-folder, unless that is the log folder ``root``."""
    folder = path.parent
    if folder.as_posix().endswith("/" + PLUGIN_FOLDER):
        folder = folder.parents[len(PurePosixPath(PLUGIN_FOLDER).parts) - 1]
    return folder.parent if _RANK_FOLDER.fullmatch(folder.name) and folder != root else folder


def _files(folder: Path) -> Iterator[tuple[Path, str]]:
    """Files of runs with their kinds; links to folders and links out of the folder are not followed."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(parent, name)
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
    return SNAPSHOT if name.removesuffix(".gz").endswith((".pickle", ".pkl")) else TRACE


def _run(root: Root, folder: Path, paths: Sequence[tuple[Path, str]]) -> Run:
    recordings = [path for path, kind in paths if kind not in (LOG, ESTIMATE)]
    names = dict(zip(recordings, short_names(recordings), strict=True))
    files = []
    for path, kind in paths:
        file = path.relative_to(folder).as_posix()
        rank = int(ranks[-1]) if (ranks := _RANK.findall(file)) else None
        with contextlib.suppress(OSError):  # it was removed during the search
            stat = path.stat()
            files.append(RunFile(path, file, kind, rank, stat.st_size, stat.st_mtime_ns, names.get(path, path.name)))
    relative = folder.relative_to(root.path).as_posix()
    name = root.own_run if relative == "." else relative
    return Run(f"{root.name}/{name}" if root.name else name, folder, root.path, tuple(files))


def roots_of(logdir: str, logdir_spec: str = "") -> tuple[Root, ...]:
    """Log folders from TensorBoard's options as typed; ``logdir_spec`` is ``name:path,path``."""
    if logdir:
        return () if "://" in logdir else (Root(_absolute(logdir)),)
    roots = []
    for part in filter(None, logdir_spec.split(",")):
        if "://" in part:
            continue  # remote storage: only local files are read
        name, colon, path = part.partition(":")
        has_name = bool(colon) and not name.startswith("/") and not path.startswith("//")
        roots.append(Root(_absolute(path), name) if has_name else Root(_absolute(part)))
    return tuple(roots)


def _absolute(path: str) -> Path:
    return Path(os.path.abspath(os.path.expanduser(path)))


class RunFiles(NamedTuple):
    """A run and the live logs of its ranks."""

    name: str
    path: Path
    logs: tuple[Path, ...]

    @property
    def changed(self) -> float:
        """Unix time of the last write, in seconds."""
        return max((log.stat().st_mtime for log in self.logs if log.exists()), default=0.0)


def find_runs(path: str | os.PathLike[str]) -> list[RunFiles]:
    """The runs in a folder, a run folder or a live log, oldest first; UsageError if there is none.

    Those in an ``archived`` folder are left out if there are others.
    """
    folder = Path(path).expanduser()
    if folder.is_file():
        return [RunFiles(folder.name, folder, (folder,))]
    if not folder.is_dir():
        if folder.exists():
            open_regular(folder).close()  # says what it is
        raise UsageError(f"{folder}: no such file or folder; a log folder or a run's folder is needed")
    logs: dict[Path, list[Path]] = {}
    for log in current_of(sorted(folder.rglob(MONITOR_LOG)), lambda path: path, folder):
        logs.setdefault(run_folder(log, folder), []).append(log)
    if not logs:
        raise UsageError(f"{folder}: no run of tbmem: there is no {MONITOR_LOG} below it")
    names = {run: str(run.relative_to(folder)) if run != folder else run.resolve().name for run in logs}
    runs = [RunFiles(names[run], run, tuple(paths)) for run, paths in logs.items()]
    return sorted(runs, key=lambda run: run.changed)


_FIRST = 2  # number of the first later run of a name


def later_namesake(run: Path) -> Path | None:
    """The folder beside a run's that is named as its last later run of the same name: ``big_3`` of ``big``.

    Such is the name that ``claim_folder`` gives a run whose own is taken, the first ``big_2``; somebody may have chosen
    it as well.
    """
    number = re.compile(re.escape(run.name) + r"_(\d+)")
    folders = {match[0]: int(match[1]) for other in run.parent.glob("*/") if (match := number.fullmatch(other.name))}
    return run.with_name(max(folders, key=folders.__getitem__)) if _FIRST in folders.values() else None
