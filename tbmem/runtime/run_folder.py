"""The run section and a rank go in; a folder that can be written comes out."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from pathlib import Path

from tbmem.config.schema import RunConfig
from tbmem.errors import RunFolderError
from tbmem.model import files
from tbmem.model.address_book import AddressBook
from tbmem.model.files import complete_or_nothing
from tbmem.runtime.ranks import Rank
from tbmem.runtime.run_owner import claim_folder, job_name, time_name


class RunFolder:
    """Where one rank of a run writes.

    Args:
        path: The folder; made with its parents if missing.
        rank: Global rank, for the names of files.

    Raises:
        RunFolderError: The folder cannot be made or written.
    """

    def __init__(self, path: str | os.PathLike[str], rank: int = 0) -> None:
        # absolute: the program may change its working directory
        self.path = Path(path).expanduser().absolute()
        self.worker = files.worker_name(socket.gethostname(), rank)
        self.note = ""
        """What the user shall know of it, in one line."""
        try:
            (self.path / files.PLUGIN_FOLDER).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            reason = error.strerror or str(error)
            advice = "set run.logdir to a folder that can be written"
            raise RunFolderError(f"run.logdir: cannot write to {self.path}: {reason}; {advice}") from error

    @property
    def monitor_log(self) -> Path:
        """The live log."""
        return self.path / files.MONITOR_LOG

    def trace(self, time_ns: int) -> Path:
        """A trace that was begun at ``time_ns`` (Unix nanoseconds)."""
        return self.path / files.trace_name(self.worker, time_ns)

    def snapshot(self, label: str | int) -> Path:
        """A memory snapshot; a number is counted up until its file does not exist yet."""
        path = self.path / files.snapshot_name(self.worker, label)
        number = 2
        while path.exists():
            again = label + number - 1 if isinstance(label, int) else f"{label}-{number}"
            path = self.path / files.snapshot_name(self.worker, again)
            number += 1
        return path

    def evidence(self, number: int) -> Path:
        """What was seen when growth was suspected for the ``number``-th time."""
        return self.path / files.evidence_name(number)

    def write_shortage(self, text: str, word: str) -> Path:
        """Write a report on memory that ran out, whole or not at all; a second one has a number.

        Args:
            text: The report.
            word: ``'oom'``, or ``'near-limit'`` where it nearly ran out.

        Raises:
            OSError: The file cannot be written.
        """
        path, number = self.path / files.shortage_name(self.worker, word), 2
        while path.exists():
            path, number = self.path / files.shortage_name(self.worker, f"{word}-{number}"), number + 1
        with complete_or_nothing(path) as partial:
            partial.write_text(text, encoding="utf-8")
        return path

    def write_address_book(self, book: AddressBook, beside: Path) -> Path:
        """Write the address book of a trace or snapshot, whole or not at all.

        Raises:
            OSError: The file cannot be written.
        """
        path = beside.with_name(files.address_book_name(beside.name))
        with complete_or_nothing(path) as partial:
            book.save(partial)
        return path


def open_run_folder(config: RunConfig, rank: Rank) -> RunFolder:
    """Make the folder of this rank; where an earlier run has the name, the folder has a number, and ``note`` says so.

    Args:
        config: Section ``run``.
        rank: This process's rank.

    Raises:
        RunFolderError: The folder cannot be made or written.
    """
    logdir = Path(config.logdir).expanduser().absolute()
    name = config.name or (job_name(os.environ) if rank.world_size > 1 else time_name(time.time()))
    try:
        run = claim_folder(logdir, name, rank)
    except OSError:
        run = logdir / name  # RunFolder says what is wrong
    place = run / files.rank_folder(rank.rank) if config.several and rank.world_size > 1 else run
    folder = RunFolder(place, rank.rank)
    if config.name and run != logdir / name:
        folder.note = f"{logdir / name} holds an earlier run: this one writes to {run}"
    return folder
