"""Run folders: their name, their owner (one run, or all ranks of one job), and the paths of a rank's files."""

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
from tbmem.model.files import atomic_write
from tbmem.runtime.process.identity import Rank

_JOB_VARIABLES = ("SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID", "TORCHELASTIC_RUN_ID")
"""Variables with one value per job, the same on all ranks."""
_LAUNCH_VARIABLES = (
    *("TORCHELASTIC_RESTART_COUNT", "SLURM_STEP_ID", "SLURM_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE"),
)
"""Variables that differ between launches of a job and are the same on all ranks."""
_NO_JOB = ("", "none")
"""Values that torchrun sets without a job id."""
_LOOKS, _BETWEEN_LOOKS = 20, 0.05
"""Number of attempts, and seconds between them, to read an owner's file that is still empty."""


class RunFolder:
    """The files of one rank of a run.

    Raises:
        RunFolderError: The folder cannot be made or written.
    """

    def __init__(self, path: str | os.PathLike[str], rank: int = 0) -> None:
        # absolute: the program may change its working directory
        self.path = Path(path).expanduser().absolute()
        self.worker = files.worker_name(socket.gethostname(), rank)
        self.note = ""
        """A line for the user; may be empty."""
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
        """Path of a trace begun at ``time_ns`` (Unix nanoseconds)."""
        return self.path / files.trace_name(self.worker, time_ns)

    def snapshot(self, label: str | int) -> Path:
        """Unused path of a memory snapshot; a number is increased until the file does not exist."""
        return self._free(files.snapshot_name, label)

    def _free(self, name_of: Callable[[str, Any], str], label: str | int) -> Path:
        """The first path that does not exist yet: ``label``, then with increasing numbers."""
        again = (label + number if isinstance(label, int) else f"{label}-{number + 1}" for number in count(1))
        labels = chain([label], again)
        return next(path for number in labels if not (path := self.path / name_of(self.worker, number)).exists())

    def evidence(self, number: int) -> Path:
        """Path of the evidence on the ``number``-th suspicion."""
        return self.path / files.evidence_name(number)

    def write_shortage(self, text: str, word: str) -> Path:
        """Write an out-of-memory report atomically; a second one has a number.

        Raises:
            OSError: The file cannot be written.
        """
        path = self._free(files.oom_report_name, word)
        with atomic_write(path) as partial:
            partial.write_text(text, encoding="utf-8")
        return path

    def write_address_book(self, book: AddressBook, beside: Path) -> Path:
        """Write the address book of a trace or snapshot atomically.

        Raises:
            OSError: The file cannot be written.
        """
        path = beside.with_name(files.address_book_name(beside.name))
        with atomic_write(path) as partial:
            book.save(partial)
        return path


def open_run_folder(config: RunConfig, rank: Rank) -> RunFolder:
    """Create the folder of this rank; if an earlier run has the name, the folder is numbered and ``note`` says so.

    Raises:
        RunFolderError: The folder cannot be made or written.
    """
    logdir = Path(config.logdir).expanduser().absolute()
    name = config.name or (job_name(os.environ) if rank.world_size > 1 else time_name(time.time()))
    try:
        run = claim_folder(logdir, name, rank)
    except OSError:
        run = logdir / name  # RunFolder raises with the reason
    path = run / files.rank_folder(rank.rank) if config.several and rank.world_size > 1 else run
    folder = RunFolder(path, rank.rank)
    if config.name and run != logdir / name:
        folder.note = f"{logdir / name} holds an earlier run: this one writes to {run}"
    return folder


def claim_folder(logdir: Path, name: str, rank: Rank) -> Path:
    """The run's folder: ``name``, or ``name_2``, ``name_3`` ... if an earlier run has the name.

    The first process that creates the owner's file owns the folder. All ranks of a job compute the same owner without
    communication. A rank claims a folder once, so that the ranks of a second run of the job take the next number.

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
        return False  # written by a MemoryMonitor with a given folder, or by an earlier version
    owner_file.parent.mkdir(parents=True, exist_ok=True)
    return _create(owner_file, owner) or _read_owner(owner_file) == owner


def _has_log(folder: Path) -> bool:
    ranks = folder.glob(f"{files.rank_folder('*')}/{files.MONITOR_LOG}")
    return (folder / files.MONITOR_LOG).exists() or any(True for _ in ranks)


def _create(path: Path, text: str) -> bool:
    """Create a file; ``False`` if it exists."""
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True


def _read_owner(path: Path) -> str:
    """The owner's name, which may be written at this moment."""
    for _ in range(_LOOKS):
        text = path.read_text(encoding="utf-8", errors="replace")
        if text:
            return text
        time.sleep(_BETWEEN_LOOKS)
    return ""


def launch_of(environment: Mapping[str, str]) -> str:
    """An identifier of this launch of a job, the same on all ranks."""
    words = [job_name(environment), *(environment.get(variable, "") for variable in _LAUNCH_VARIABLES)]
    launcher = _launcher() if _on_one_machine(environment) else None
    return " ".join((*words, str(launcher.pid) if launcher is not None else "")).strip()


def job_name(environment: Mapping[str, str]) -> str:
    """A run name that is the same on all ranks of a job, without communication between them.

    On one machine it is the start time of the launcher, across machines the job's id.
    """
    for variable in _JOB_VARIABLES:
        if not _on_one_machine(environment) and environment.get(variable, "").lower() not in _NO_JOB:
            return f"job-{environment[variable]}"
    launcher = _launcher()
    return time_name(launcher.create_time() if launcher is not None else time.time())


def _launcher() -> psutil.Process | None:
    """The process that started all ranks of this machine; shells in between are skipped."""
    process = psutil.Process().parent()
    try:
        while process is not None and "LOCAL_RANK" in process.environ():
            process = process.parent()
    except (psutil.Error, OSError):
        pass  # a process of another user
    return process


def _on_one_machine(environment: Mapping[str, str]) -> bool:
    local = environment.get("LOCAL_WORLD_SIZE")
    return local is not None and local == environment.get("WORLD_SIZE")


def time_name(moment: float) -> str:
    """Name of a run that started at a Unix time in seconds."""
    return time.strftime("%Y%m%d-%H%M%S", time.localtime(moment))
