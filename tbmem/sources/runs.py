"""A path goes in; the runs below it, and the pieces of their live logs as they are written, come out."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tbmem.errors import UsageError
from tbmem.model import layout


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
    for log in sorted(place.rglob(layout.MONITOR_LOG)):
        logs.setdefault(_run_of(log, place), []).append(log)
    if not logs:
        raise UsageError(f"{place}: no run of tbmem: there is no {layout.MONITOR_LOG} below it")
    runs = [RunFiles(name=_name(run, place), path=run, logs=tuple(found)) for run, found in logs.items()]
    return sorted(runs, key=lambda run: run.changed)


def _run_of(log: Path, place: Path) -> Path:
    """The run folder of a log; ranks have sub-folders of it."""
    folder = log.parents[len(Path(layout.MONITOR_LOG).parts) - 1]
    is_rank = folder.name.startswith("rank") and folder.name[4:].isdigit()
    return folder.parent if is_rank and folder != place else folder


def _name(run: Path, place: Path) -> str:
    return str(run.relative_to(place)) if run != place else run.resolve().name
