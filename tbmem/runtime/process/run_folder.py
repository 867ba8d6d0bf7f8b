"""The folder of a run: its name, its owner (one run, or one job with all of its ranks), and the files of one rank."""

from __future__ import annotations

import os
import socket
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from itertools import chain, count
from pathlib import Path
from typing import Any

import psutil

from tbmem.config.schema import RunConfig
from tbmem.errors import RunFolderError
from tbmem.model import files
from tbmem.model.address_book import AddressBook
from tbmem.model.files import complete_or_nothing
from tbmem.runtime.process.identity import Rank

_JOB_VARIABLES = ("SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID", "TORCHELASTIC_RUN_ID")
"""Variables that hold the same word on every rank of a job and another one for every job."""
_LAUNCH_VARIABLES = (
    *("TORCHELASTIC_RESTART_COUNT", "SLURM_STEP_ID", "SLURM_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE"),
)
"""Variables that tell one launch of a job from the next, and are the same on every rank."""
_NO_JOB = ("", "none")
"""What torchrun sets where it was given no id."""
_LOOKS, _BETWEEN_LOOKS = 20, 0.05
"""How often, and how many seconds apart, an owner is read that has not written its name yet."""


class RunFolder:
    """Where one rank of a run writes.

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
        return self._free(files.snapshot_name, label)

    def _free(self, name_of: Callable[[str, Any], str], label: str | int) -> Path:
        """The first path of that name, of those with a number, that does not exist yet."""
        again = (label + number if isinstance(label, int) else f"{label}-{number + 1}" for number in count(1))
        labels = chain([label], again)
        return next(path for number in labels if not (path := self.path / name_of(self.worker, number)).exists())

    def evidence(self, number: int) -> Path:
        """What was seen when growth was suspected for the ``number``-th time."""
        return self.path / files.evidence_name(number)

    def write_shortage(self, text: str, word: str) -> Path:
        """Write a report on memory that ran out, whole or not at all; a second one has a number.

        Raises:
            OSError: The file cannot be written.
        """
        path = self._free(files.shortage_name, word)
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

    Raises:
        RunFolderError: The folder cannot be made or written.
    """
    logdir = Path(config.logdir).expanduser().absolute()
    name = config.name or (job_name(os.environ) if rank.world_size > 1 else time_name(time.time()))
    try:
        run = claim_folder(logdir, name, rank)
    except OSError:
        run = logdir / name  # RunFolder says what is wrong
    path = run / files.rank_folder(rank.rank) if config.several and rank.world_size > 1 else run
    folder = RunFolder(path, rank.rank)
    if config.name and run != logdir / name:
        folder.note = f"{logdir / name} holds an earlier run: this one writes to {run}"
    return folder


def claim_folder(logdir: Path, name: str, rank: Rank) -> Path:
    """The run's folder: ``name``, or ``name_2``, ``name_3`` ... where an earlier run has that.

    The first process that makes the owner's file has the folder, whoever starts at the same moment. Ranks of a job find
    the owner that all of them are, without asking each other; and because a rank takes its place in a folder once,
    those of a second run of the same job go on to the next number, each by itself.

    Raises:
        OSError: The folder cannot be made or written.
    """
    owner = launch_of(os.environ) if rank.world_size > 1 else uuid.uuid4().hex
    for number in count(1):
        folder = logdir / (f"{name}_{number}" if number > 1 else name)
        if _is_ours(folder, owner) and (rank.world_size == 1 or _create(folder / files.owner_name(rank.rank), owner)):
            return folder
    raise AssertionError  # numbers do not end


def _is_ours(folder: Path, owner: str) -> bool:
    owner_file = folder / files.owner_name()
    if not owner_file.exists() and _has_log(folder):
        return False  # of a monitor that was given its folder, or of an earlier version
    owner_file.parent.mkdir(parents=True, exist_ok=True)
    return _create(owner_file, owner) or _read_owner(owner_file) == owner


def _has_log(folder: Path) -> bool:
    ranks = folder.glob(f"{files.rank_folder('*')}/{files.MONITOR_LOG}")
    return (folder / files.MONITOR_LOG).exists() or any(True for _ in ranks)


def _create(path: Path, text: str) -> bool:
    """Make a file that nobody has made before; ``False`` if somebody has."""
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True


def _read_owner(path: Path) -> str:
    """Who the owner is; it may be writing its name just now."""
    for _ in range(_LOOKS):
        text = path.read_text(encoding="utf-8", errors="replace")
        if text:
            return text
        time.sleep(_BETWEEN_LOOKS)
    return ""


def launch_of(environment: Mapping[str, str]) -> str:
    """What is the same on every rank of this launch of a job, and another for every other launch."""
    words = [job_name(environment), *(environment.get(variable, "") for variable in _LAUNCH_VARIABLES)]
    launcher = _launcher() if _on_one_machine(environment) else None
    return " ".join((*words, str(launcher.pid) if launcher is not None else "")).strip()


def job_name(environment: Mapping[str, str]) -> str:
    """A name that is the same on every rank of a job.

    Ranks start at slightly different times, and asking each other would be a collective that can hang. On one
    machine it is the moment at which the launcher started, across machines the job's id.
    """
    for variable in _JOB_VARIABLES:
        if not _on_one_machine(environment) and environment.get(variable, "").lower() not in _NO_JOB:
            return f"job-{environment[variable]}"
    launcher = _launcher()
    return time_name(launcher.create_time() if launcher is not None else time.time())


def _launcher() -> psutil.Process | None:
    """The process that started all ranks of this machine: shells between it and a rank belong to that rank."""
    process = psutil.Process().parent()
    try:
        while process is not None and "LOCAL_RANK" in process.environ():
            process = process.parent()
    except (psutil.Error, OSError):
        pass  # somebody else's: none of our shells
    return process


def _on_one_machine(environment: Mapping[str, str]) -> bool:
    local = environment.get("LOCAL_WORLD_SIZE")
    return local is not None and local == environment.get("WORLD_SIZE")


def time_name(moment: float) -> str:
    """Name of a run that began at a Unix time, in seconds."""
    return time.strftime("%Y%m%d-%H%M%S", time.localtime(moment))
