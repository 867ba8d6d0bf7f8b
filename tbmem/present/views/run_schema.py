"""Types of the entries that several answers about runs contain."""

from __future__ import annotations

from typing import TypedDict


class Empty(TypedDict):
    """Why there is nothing to draw, and how to get data."""

    title: str
    text: str
    commands: list[str]
    """Lines to type, or to add to a training script."""


class FileItem(TypedDict):
    """One file of a run."""

    file: str
    """Relative to the run's folder."""
    name: str
    """Short, for people: ``rank0_window1``."""
    kind: str
    """``log``, ``trace``, ``snapshot``, ``timeline``, ``estimate``."""
    rank: int | None
    bytes: int
    changed: float
    error: str | None
    """Why it cannot be read; ``null`` if it can be, or was not read yet."""


class FileOfRun(FileItem):
    """A file beside those of other runs."""

    run: str


class RunItem(TypedDict):
    """One run of the log folder."""

    run: str
    """Name as in TensorBoard: path relative to the log folder, ``.`` for the folder itself."""
    status: str
    """A value of ``analysis.run_status.Standing``."""
    status_text: str
    """Text of the status: ``ended by ValueError``."""
    changed: float
    version: str
    """Changes whenever a file of the run changes."""
    ranks: list[int]
    logs: list[FileItem]
    recordings: list[FileItem]
    estimates: list[FileItem]
