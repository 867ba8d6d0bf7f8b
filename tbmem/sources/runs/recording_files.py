"""Paths, folders and patterns as a user types them go in; the files to analyse, each with a short name, come out."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tbmem.errors import FileFormatError
from tbmem.model.files import ADDRESS_BOOK_SUFFIX, SNAPSHOT_SUFFIX, TRACE_SUFFIX

IN_FOLDERS = (
    "trace.json",
    ".json.gz",
    ".pickle",
    ".pickle.gz",
    ".pkl",
    ".pkl.gz",
    ".tbmem.npz",
)
"""Ends of the names that are looked for in a folder."""
_ITERATION = re.compile(r"(?:^|[_\-./])(?:iteration|iter|it|step)[_\-]?(\d+)", re.IGNORECASE)
_RANK = re.compile(r"(?:^|[_\-./])rank[_\-]?(\d+)", re.IGNORECASE)
_WINDOW = re.compile(r"\.(\d{12,})$")
_SUFFIXES = (
    *(TRACE_SUFFIX, TRACE_SUFFIX.removesuffix(".gz"), SNAPSHOT_SUFFIX, ".tbmem.npz", ".json.gz", ".json"),
    *(".pickle.gz", ".pickle", ".pkl.gz", ".pkl", ".gz"),
)
_UNFIT = re.compile(r"[^A-Za-z0-9_.-]+")


class NothingFoundError(FileFormatError):
    """A folder or a pattern without any recording."""


@dataclass(frozen=True, slots=True)
class RecordingFile:
    """One file to analyse."""

    path: Path
    name: str
    named: bool
    """Whether the user named this very file; others are passed over if they turn out to be something else."""


def find_recordings(paths: Iterable[str | os.PathLike[str]]) -> tuple[RecordingFile, ...]:
    """Files that are meant.

    Args:
        paths: Files, folders (searched through, with all folders below) and patterns such as ``'run/*/rank*.pickle'``.

    Raises:
        FileFormatError: A path does not exist, or nothing is found in it.
    """
    found: dict[Path, bool] = {}
    for given in paths:
        text = os.path.expanduser(os.fspath(given))
        for path, named in _expand(text):
            found[path] = found.get(path, False) or named
    names = short_names(list(found))
    return tuple(RecordingFile(path, name, named) for (path, named), name in zip(found.items(), names, strict=True))


def _expand(text: str) -> list[tuple[Path, bool]]:
    place = Path(text)
    if place.is_dir():
        return [(path, False) for path in _in_folder(place)]
    if place.exists():
        return [(place, True)]
    matches = sorted(glob.glob(text, recursive=True))
    if not matches:
        raise FileFormatError(f"{text}: no such file or folder")
    files = [Path(match) for match in matches if os.path.isfile(match) and not match.endswith(ADDRESS_BOOK_SUFFIX)]
    folders = [path for match in matches if os.path.isdir(match) for path in _in_folder(Path(match), must=False)]
    if not files and not folders:
        raise NothingFoundError(f"{text}: no recording among what this pattern matches")
    return [(path, False) for path in dict.fromkeys([*files, *folders])]


def _in_folder(folder: Path, must: bool = True) -> list[Path]:
    found = sorted(path for path in folder.rglob("*") if path.name.lower().endswith(IN_FOLDERS) and path.is_file())
    if not found and must:
        raise NothingFoundError(
            f"{folder}: no recording in this folder: no *.pt.trace.json[.gz], *.pickle, *.pkl or *.tbmem.npz"
        )
    return found


def short_name(path: str | os.PathLike[str]) -> str:
    """A name as a person would give it.

    ``'out/iteration_1/rank0_memory_snapshot.pickle'`` is ``'iter1_rank0'``; a file without iteration and rank keeps
    its own name.
    """
    place = Path(path)
    text = "/".join(place.parts[-3:])
    parts = []
    if iterations := _ITERATION.findall(text):
        parts.append(f"iter{int(iterations[-1])}")
    if ranks := _RANK.findall(text):
        parts.append(f"rank{int(ranks[-1])}")
    return "_".join(parts) or _stem(place)


def _stem(place: Path) -> str:
    name = place.name
    for suffix in _SUFFIXES:
        if name.lower().endswith(suffix) and len(name) > len(suffix):
            name = name[: -len(suffix)]
            break
    return _UNFIT.sub("_", name).strip("._-") or "recording"


def short_names(paths: Sequence[Path]) -> list[str]:
    """Short names, each a different one: windows of one process are numbered in order of their names."""
    names = [short_name(path) for path in paths]
    doubled = {name for name, count in Counter(names).items() if count > 1}
    order: dict[str, list[Path]] = {name: [] for name in doubled}
    for name, path in sorted(zip(names, paths, strict=True), key=lambda pair: str(pair[1])):
        if name in doubled:
            order[name].append(path)
    word = {name: "window" if all(_WINDOW.search(_bare(path)) for path in order[name]) else "" for name in doubled}
    return [
        f"{name}_{word[name]}{order[name].index(path) + 1}" if name in doubled else name
        for name, path in zip(names, paths, strict=True)
    ]


def _bare(path: Path) -> str:
    return path.name.removesuffix(TRACE_SUFFIX)
