"""Recordings and logs that were dropped onto the page, in a temporary folder that ends with the server."""

from __future__ import annotations

import re
import shutil
import tempfile
import threading
import weakref
from pathlib import Path
from typing import IO

from tbmem.errors import FileFormatError, UsageError
from tbmem.model.files import MONITOR_LOG
from tbmem.offline.queries.answers import Answers
from tbmem.sources.runs.catalog import Root
from tbmem.sources.runs.recording_files import IN_FOLDERS
from tbmem.units import format_bytes

LARGEST = 2 << 30
"""Limit of a file in bytes; ``web/drop.js`` has the same, as a refused file must not be sent."""
GROUP = "Dropped files"
"""Prefix of the runs' names."""
_LOG = ".jsonl"
_RENAMED = {".json": ".pt.trace.json", ".npz": ".tbmem.npz"}
"""Suffixes that are recordings when they are dropped, but not when they lie in a log folder."""
_UNFIT = re.compile(r"[\x00-\x1f\x7f/\\]")
_LONGEST = 150


class DroppedFiles:
    """Files that were dropped onto the page; each is a run of its own.

    Args:
        answers: What the page asks; the files are added to its catalog.
    """

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._folder: Path | None = None
        self._lock = threading.Lock()

    def add(self, name: str, content: IO[bytes], size: int | None) -> dict[str, str]:
        """Store a file of ``size`` bytes and read it; one that cannot be read is deleted.

        Returns:
            The run, the view that shows it, and for a recording its file.

        Raises:
            UsageError: The file is too large, was cut off, or has no suffix of a recording or log.
            FileFormatError: It cannot be read.
        """
        stored = stored_name(name)
        if size is None:
            raise UsageError(f"{name}: its size is missing")
        if size > LARGEST:
            limit = f"at most {format_bytes(LARGEST)} can be dropped: copy it into the log folder"
            raise UsageError(f"{name}: {format_bytes(size)}, {limit}")
        folder = self._new_folder(stored)
        is_log = stored.endswith(_LOG)
        path = folder / (MONITOR_LOG if is_log else stored)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                shutil.copyfileobj(content, file, 1 << 20)
            if path.stat().st_size != size:
                raise UsageError(f"{name}: {path.stat().st_size} of {size} bytes arrived: drop it again")
            self._answers.catalog.search_again()
            run = f"{GROUP}/{folder.name}"
            if is_log:
                self._read_log(run, name)
                return {"run": run, "view": "live"}
            self._answers.subject(run, stored)
        except BaseException:
            self._remove(folder)
            raise
        return {"run": run, "view": "timeline", "file": stored}

    def _new_folder(self, name: str) -> Path:
        with self._lock:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="tbmem-dropped-"))
                weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
                self._answers.catalog.add(Root(self._folder, GROUP))
            number, folder = 1, self._folder / name
            while folder.exists():
                number += 1
                folder = folder.with_name(f"{name} ({number})")
            folder.mkdir()
        return folder

    def _read_log(self, run: str, name: str) -> None:
        answer = self._answers.answer("live", {"run": [run]})
        if answer["errors"]:
            raise FileFormatError(answer["errors"][0]["error"].replace(MONITOR_LOG, name))
        if answer["empty"]:
            raise FileFormatError(f"{name}: a log without steps")

    def _remove(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        self._answers.catalog.search_again()


def stored_name(name: str) -> str:
    """Name under which a dropped file is found by the catalog; UsageError if it is neither a recording nor a log."""
    plain = _UNFIT.sub("_", name).lstrip(".")[-_LONGEST:]
    lower = plain.lower()
    if lower.endswith((*IN_FOLDERS, _LOG)):
        return plain
    for suffix, known in _RENAMED.items():
        if lower.endswith(suffix):
            return plain[: -len(suffix)] + known
    kinds = ".pickle[.gz], .pkl[.gz], .json[.gz], .tbmem.npz or .jsonl"
    raise UsageError(
        f"{name}: neither a snapshot, a trace, a timeline nor a live log: its name ends with none of {kinds}"
    )
