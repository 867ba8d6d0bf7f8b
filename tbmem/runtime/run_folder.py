"""The run section and a rank go in; a folder that can be written comes out."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path

import psutil

from tbmem.config.schema import RunConfig
from tbmem.errors import RunFolderError
from tbmem.model import layout
from tbmem.model.address_book import AddressBook
from tbmem.model.whole_file import complete_or_nothing
from tbmem.runtime.ranks import Rank

_JOB_VARIABLES = ("SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID", "TORCHELASTIC_RUN_ID")
"""Variables that hold the same word on every rank of a job and another one for every job."""
_RUNS_OF_THIS_JOB = count(1)
"""Runs that this process has named; the same on every rank that runs the same program."""
_NO_JOB = ("", "none")
"""What torchrun sets where it was given no id."""


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
        self.worker = layout.worker_name(socket.gethostname(), rank)
        try:
            (self.path / layout.PLUGIN_FOLDER).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            reason = error.strerror or str(error)
            advice = "set run.logdir to a folder that can be written"
            raise RunFolderError(f"run.logdir: cannot write to {self.path}: {reason}; {advice}") from error

    @property
    def monitor_log(self) -> Path:
        """The live log."""
        return self.path / layout.MONITOR_LOG

    def trace(self, time_ns: int) -> Path:
        """A trace that was begun at ``time_ns`` (Unix nanoseconds)."""
        return self.path / layout.trace_name(self.worker, time_ns)

    def snapshot(self, label: str | int) -> Path:
        """A memory snapshot; a number is counted up until its file does not exist yet."""
        path = self.path / layout.snapshot_name(self.worker, label)
        number = 2
        while path.exists():
            again = label + number - 1 if isinstance(label, int) else f"{label}-{number}"
            path = self.path / layout.snapshot_name(self.worker, again)
            number += 1
        return path

    def evidence(self, number: int) -> Path:
        """What was seen when growth was suspected for the ``number``-th time."""
        return self.path / layout.evidence_name(number)

    def write_address_book(self, book: AddressBook, beside: Path) -> Path:
        """Write the address book of a trace or snapshot, whole or not at all.

        Raises:
            OSError: The file cannot be written.
        """
        path = beside.with_name(layout.address_book_name(beside.name))
        with complete_or_nothing(path) as partial:
            book.save(partial)
        return path


def open_run_folder(config: RunConfig, rank: Rank) -> RunFolder:
    """Make the folder of this rank.

    Args:
        config: Section ``run``.
        rank: This process's rank.

    Raises:
        RunFolderError: The folder cannot be made or written.
    """
    logdir = Path(config.logdir).expanduser()
    name = config.name or _name(logdir, rank)
    path = logdir / name
    if config.several and rank.world_size > 1:
        path /= layout.rank_folder(rank.rank)
    return RunFolder(path, rank.rank)


def _name(logdir: Path, rank: Rank) -> str:
    """A name that all ranks of a job agree on without asking each other."""
    if rank.world_size > 1:
        number = next(_RUNS_OF_THIS_JOB)
        return job_name(os.environ) + (f"-{number}" if number > 1 else "")
    stamp = _stamp(time.time())
    for number in count(1):
        name = f"{stamp}-{number}" if number > 1 else stamp
        try:
            # made here and now: two runs that start in the same second must not share it
            (logdir / name).mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError:
            break  # RunFolder says what is wrong
        return name
    return stamp


def job_name(environment: Mapping[str, str]) -> str:
    """A name that is the same on every rank of a job.

    Ranks start at slightly different times, and asking each other would be a collective that can hang. On one
    machine it is the moment at which the launcher started, across machines the job's id.

    Args:
        environment: Variables of the launcher or the scheduler.
    """
    local = environment.get("LOCAL_WORLD_SIZE")
    on_one_machine = local is not None and local == environment.get("WORLD_SIZE")
    for variable in _JOB_VARIABLES:
        if not on_one_machine and environment.get(variable, "").lower() not in _NO_JOB:
            return f"job-{environment[variable]}"
    parent = psutil.Process().parent()
    return _stamp(parent.create_time() if parent is not None else time.time())


def _stamp(moment: float) -> str:
    return time.strftime("%Y%m%d-%H%M%S", time.localtime(moment))
