"""Finds recordings in files, folders and patterns, and gives each a short name."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from tbmem.errors import FileFormatError
from tbmem.model.files import ADDRESS_BOOK_SUFFIX, SNAPSHOT_SUFFIX, TRACE_SUFFIX
from tbmem.regular_files import path_text

IN_FOLDERS = ("trace.json", ".json.gz", ".pickle", ".pickle.gz", ".pkl", ".pkl.gz", ".tbmem.npz")
"""Suffixes of the files that are looked for in a folder."""
_ITERATION = re.compile(r"(?:^|[_\-./])(?:iteration|iter|it|step)[_\-]?(\d+)", re.IGNORECASE)
_RANK = re.compile(r"(?:^|[_\-./])rank[_\-]?(\d+)", re.IGNORECASE)
_WINDOW = re.compile(r"\.(\d{12,})$")
_SUFFIXES = (
    *(TRACE_SUFFIX, TRACE_SUFFIX.removesuffix(".gz"), SNAPSHOT_SUFFIX, ".tbmem.npz", ".json.gz", ".json"),
    *(".pickle.gz", ".pickle", ".pkl.gz", ".pkl", ".gz"),
)
_Item = TypeVar("_Item")
_UNFIT = re.compile(r"[^A-Za-z0-9_.-]+")


ARCHIVED = "archived"
"""Name of folders whose recordings and runs are left out where a folder above them is read."""


class NothingFoundError(FileFormatError):
    """A folder or a pattern without any recording."""


class RecordingFile(NamedTuple):
    """A recording to analyse."""

    path: Path
    name: str
    named: bool
    """Whether the user named this file; others are skipped if they turn out to be something else."""


def find_recordings(
    paths: Iterable[str | os.PathLike[str]], on_skip: Callable[[str], None] | None = None
) -> tuple[RecordingFile, ...]:
    """Find recordings in files, folders (and all below) and patterns such as ``'run/*/rank*.pickle'``.

    Args:
        paths: Files, folders and patterns.
        on_skip: Called with a sentence for each folder whose archived recordings are left out.

    Raises:
        FileFormatError: A path does not exist, or nothing is found in it.
        UsageError: An argument is no path.
    """
    files: dict[Path, bool] = {}
    for argument in paths:
        text = os.path.expanduser(path_text(argument))
        found = _expand(text)
        current = current_of(found, lambda recording: recording[0], Path(text)) if os.path.isdir(text) else found
        if on_skip is not None and len(current) < len(found):
            count = len(found) - len(current)
            on_skip(f"{text}: {count} recording{'s' * (count > 1)} in {ARCHIVED}; name that folder to read them")
        for path, named in current:
            files[path] = files.get(path, False) or named
    names = short_names(list(files))
    return tuple(RecordingFile(path, name, named) for (path, named), name in zip(files.items(), names, strict=True))


def current_of(items: Sequence[_Item], path_of: Callable[[_Item], Path], folder: Path) -> list[_Item]:
    """The items that are in no ``archived`` folder below ``folder``; all, if there are no others."""
    current = [item for item in items if ARCHIVED not in path_of(item).relative_to(folder).parts[:-1]]
    return current or list(items)


def _expand(text: str) -> list[tuple[Path, bool]]:
    path = Path(text)
    if path.is_dir():
        return [(recording, False) for recording in _in_folder(path)]
    if path.exists():
        return [(path, True)]
    matches = sorted(glob.glob(text, recursive=True))
    if not matches:
        raise FileFormatError(f"{text}: no such file or folder; a recording, a run's folder or a pattern is needed")
    files = [Path(match) for match in matches if os.path.isfile(match) and not match.endswith(ADDRESS_BOOK_SUFFIX)]
    files += [path for match in matches if os.path.isdir(match) for path in _in_folder(Path(match), must=False)]
    if not files:
        raise NothingFoundError(f"{text}: no recording among what this pattern matches")
    return [(path, False) for path in dict.fromkeys(files)]


def _in_folder(folder: Path, must: bool = True) -> list[Path]:
    files = sorted(path for path in folder.rglob("*") if path.name.lower().endswith(IN_FOLDERS) and path.is_file())
    if not files and must:
        wanted = "*.pt.trace.json[.gz], *.pickle, *.pkl or *.tbmem.npz"
        raise NothingFoundError(f"{folder}: no recording in this folder: no {wanted}")
    return files


def short_name(path: Path) -> str:
    """``'iter1_rank0'`` for ``'out/iteration_1/rank0_memory_snapshot.pickle'``; without these the file's own name."""
    text = "/".join(path.parts[-3:])
    found = {"iter": _ITERATION.findall(text), "rank": _RANK.findall(text)}
    name = path.name
    suffix = next((suffix for suffix in _SUFFIXES if name.lower().endswith(suffix) and len(name) > len(suffix)), "")
    stem = _UNFIT.sub("_", name[: len(name) - len(suffix)]).strip("._-") or "recording"
    return "_".join(f"{word}{int(numbers[-1])}" for word, numbers in found.items() if numbers) or stem


def short_names(paths: Sequence[Path]) -> list[str]:
    """Unique short names: windows of one process are numbered in order of their file names."""
    names = [short_name(path) for path in paths]
    groups: dict[str, list[Path]] = {}
    for name, path in sorted(zip(names, paths, strict=True), key=lambda pair: str(pair[1])):
        groups.setdefault(name, []).append(path)
    unique: dict[Path, str] = {}
    for name, group in groups.items():
        is_window = all(_WINDOW.search(path.name.removesuffix(TRACE_SUFFIX)) for path in group)
        for number, path in enumerate(group, 1):
            unique[path] = f"{name}_{'window' if is_window else ''}{number}" if len(group) > 1 else name
    return [unique[path] for path in paths]
