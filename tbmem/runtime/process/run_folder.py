"""Run folders: their name, their owner (one run, or all ranks of one job), and the paths of a rank's files."""

from __future__ import annotations

import hashlib
import os
import socket
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, count
from pathlib import Path

import psutil

from tbmem.config.rules import ENCODABLE, LOCAL
from tbmem.config.schema import RunConfig
from tbmem.errors import RunFolderError
from tbmem.model import files
from tbmem.model.redaction import NOTHING_REDACTED, Redaction
from tbmem.present.lines import get_logger
from tbmem.regular_files import read_regular
from tbmem.runtime.process.disk_notice import DiskNotice, FolderTaken
from tbmem.runtime.process.file_writer import FileWriter
from tbmem.runtime.process.guard import Guard
from tbmem.runtime.process.lifecycle import Rank
from tbmem.units import parse_bytes

_JOB_VARIABLES = ("SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID", "TORCHELASTIC_RUN_ID")
"""Variables with one value per job, the same on all ranks."""
_LAUNCH_VARIABLES = (
    *("TORCHELASTIC_RESTART_COUNT", "SLURM_STEP_ID", "SLURM_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE"),
)
"""Variables that differ between launches of a job and are the same on all ranks."""
_NAMED = 8
_LOOKS, _BETWEEN_LOOKS = 20, 0.05
"""Number of attempts, and seconds between them, to read an owner's file that is still empty."""


def unwritten_line(names: Sequence[str], seconds: float) -> str:
    """What the disk has not taken at the end of a run."""
    most = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    return f"not written: the disk has not taken these by the end of the run (run.wait_seconds={seconds:g}): {most}"


class RunFolder:
    """The files of one rank of a run; raises RunFolderError if the folder cannot be made or written."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        rank: int = 0,
        *,
        owner: tuple[Path, str] | None = None,
        guard: Guard | None = None,
        config: RunConfig | None = None,
        redaction: Redaction = NOTHING_REDACTED,
    ) -> None:
        for text, holds in (ENCODABLE, LOCAL):
            if not holds(os.fspath(path)):
                raise RunFolderError(f"the run's folder {text} (got {os.fspath(path)!r})")
        self.redaction = redaction
        """What is left out of the folder's files (``output.redact``)."""
        # absolute: the program may change its working directory
        self.path = Path(path).expanduser().absolute()
        self.worker = files.worker_name(redaction.host(socket.gethostname()), rank)
        self.monitor_log = self.path / files.MONITOR_LOG
        self.note = ""
        """A line for the user; may be empty."""
        self.notice = DiskNotice()
        config = config or RunConfig()
        self.wait_seconds = config.wait_seconds
        """Maximum time that the end of the run waits for the disk."""
        self.writer = FileWriter(guard or Guard(), self.notice, parse_bytes(config.max_waiting))
        self._owner = owner
        try:
            (self.path / files.PLUGIN_FOLDER).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass
            self._names = set(os.listdir(self.path))
        except OSError as error:
            raise RunFolderError(
                f"run.logdir: cannot write to {self.path}: {error.strerror or error}; set run.logdir to a folder that"
                " can be written"
            ) from error

    def trace(self, time_ns: int) -> Path:
        """Path of a trace begun at ``time_ns`` (Unix nanoseconds)."""
        return self.path / files.trace_name(self.worker, time_ns)

    def snapshot(self, label: str | int) -> Path:
        """Unused path of a memory snapshot; a number is increased until the file does not exist."""
        labels = count(label) if isinstance(label, int) else _numbered(label)
        return self._unused(files.snapshot_name(self.worker, each) for each in labels)

    def _unused(self, names: Iterator[str]) -> Path:
        """A path that is given once; nothing is asked of the disk, which may not answer."""
        name = next(name for name in names if name not in self._names)
        self._names.add(name)
        return self.path / name

    def shortage(self, word: str) -> Path:
        """Unused path of an out-of-memory report; that of a second one has a number."""
        return self._unused(files.oom_report_name(self.worker, each) for each in _numbered(word))

    def prepare(self) -> None:
        """Make the folder again if it was deleted; called before each file is written. May raise OSError.

        Raises:
            FolderTaken: Another run has claimed the folder since.
        """
        plugin = self.path / files.PLUGIN_FOLDER
        is_there = plugin.is_dir()
        if not is_there:
            plugin.mkdir(parents=True, exist_ok=True)
            self.notice.deleted()
        if self._owner is None:
            return
        file, owner = self._owner
        if not is_there:
            file.parent.mkdir(parents=True, exist_ok=True)
            _create(file, owner)
        if file.exists() and (found := _read_owner(file)) and found != owner:
            raise FolderTaken(f"another run has begun in {self.path}")

    def write(self, path: Path, data: bytes, *, must: bool = True, then: Callable[[], object] = lambda: None) -> None:
        """Have a file written in the background, completely or not at all, and call ``then`` in that thread.

        ``must``: dropped last if the disk does not keep up.
        """

        def write() -> None:
            self.write_now(path, lambda partial: partial.write_bytes(data))
            then()

        self.writer.put(path.name, len(data), write, must=must)

    def end(self, deadline: float | None = None) -> list[str]:
        """Wait for what is to be written, ``wait_seconds`` by default, and say what was not.

        Args:
            deadline: Of ``time.monotonic``.

        Returns:
            Names of what was not written.
        """
        left = self.writer.end(time.monotonic() + self.wait_seconds if deadline is None else deadline)
        if left:
            get_logger().warning("%s", unwritten_line(left, self.wait_seconds))
        return left

    def close(self) -> None:
        """``end`` after ``wait_seconds``, for ``contextlib.closing``."""
        self.end()

    def write_now(self, path: Path, fill: Callable[[Path], object]) -> Path:
        """Write a file atomically, in the thread of ``writer``: ``fill`` writes a temporary one. May raise OSError."""
        self.prepare()
        with files.atomic_write(path) as partial:
            fill(partial)
        return path


def open_run_folder(
    config: RunConfig, rank: Rank, guard: Guard | None = None, redaction: Redaction = NOTHING_REDACTED
) -> RunFolder:
    """Create the folder of this rank; if an earlier run has the name, the folder is numbered and ``note`` says so."""
    logdir = Path(config.logdir).expanduser().absolute()
    name = config.name or (job_name(os.environ) if rank.world_size > 1 else _time_name(time.time()))
    owner = _owner_of(rank)
    try:
        run = claim_folder(logdir, name, rank, owner)
    except OSError:
        run = logdir / name  # RunFolder raises with the reason
    path = run / files.rank_folder(rank.rank) if config.several and rank.world_size > 1 else run
    owned = (run / files.owner_name(), owner)
    folder = RunFolder(path, rank.rank, owner=owned, guard=guard, config=config, redaction=redaction)
    if config.name and run != logdir / name:
        folder.note = f"{logdir / name} holds an earlier run: this one writes to {run}"
    return folder


def claim_folder(logdir: Path, name: str, rank: Rank, owner: str = "") -> Path:
    """The run's folder: ``name``, or ``name_2``, ``name_3`` ... if an earlier run has the name. May raise OSError.

    The first process that creates the owner's file owns the folder. All ranks of a job compute the same owner without
    communication (``owner``). A rank claims a folder once, so that the ranks of a second run of the job take the next
    number.
    """
    owner = owner or _owner_of(rank)
    for number in count(1):
        folder = logdir / (f"{name}_{number}" if number > 1 else name)
        if _is_ours(folder, owner) and (rank.world_size == 1 or _create(folder / files.owner_name(rank.rank), owner)):
            return folder
    raise AssertionError  # numbers do not end


def _owner_of(rank: Rank) -> str:
    return launch_of(os.environ) if rank.world_size > 1 else uuid.uuid4().hex


def _is_ours(folder: Path, owner: str) -> bool:
    owner_file = folder / files.owner_name()
    logs = (folder.glob(pattern) for pattern in (files.MONITOR_LOG, f"{files.rank_folder('*')}/{files.MONITOR_LOG}"))
    if not owner_file.exists() and any(chain.from_iterable(logs)):
        return False  # written by a MemoryMonitor with a given folder, or by an earlier version
    owner_file.parent.mkdir(parents=True, exist_ok=True)
    return _create(owner_file, owner) or _read_owner(owner_file) == owner


def _create(path: Path, text: str) -> bool:
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True


def _read_owner(path: Path) -> str:
    """The owner's name, which may be written at this moment."""
    for _ in range(_LOOKS):
        text = read_regular(path).decode(errors="replace")
        if text:
            return text
        time.sleep(_BETWEEN_LOOKS)
    return ""


def launch_of(environment: Mapping[str, str]) -> str:
    """An identifier of this launch of a job, the same on all ranks."""
    words = [job_name(environment), *(environment.get(variable, "") for variable in _LAUNCH_VARIABLES)]
    launcher = _launcher() if _on_one_machine(environment) else None
    words.append(str(launcher.pid) if launcher is not None else "")
    # as a digest: the name of the first rank's host is one of the variables
    return hashlib.sha256(" ".join(words).encode()).hexdigest()[:32]


def job_name(environment: Mapping[str, str]) -> str:
    """A run name, the same on all ranks: the launcher's start time on one machine, across machines the job's id."""
    if not _on_one_machine(environment):
        for job in (environment.get(variable, "") for variable in _JOB_VARIABLES):
            if job.lower() not in ("", "none"):  # torchrun without a job id sets "none"
                return f"job-{job}"
    launcher = _launcher()
    return _time_name(launcher.create_time() if launcher is not None else time.time())


def _launcher() -> psutil.Process | None:
    """The process that started all ranks of this machine; shells in between are skipped."""
    process = psutil.Process().parent()
    try:
        while process is not None and "LOCAL_RANK" in process.environ():
            process = process.parent()
    except (psutil.Error, OSError):
        pass  # a process of another user
    return process


def _numbered(label: str) -> Iterator[str]:
    return chain([label], (f"{label}-{number}" for number in count(2)))


def _on_one_machine(environment: Mapping[str, str]) -> bool:
    local = environment.get("LOCAL_WORLD_SIZE")
    return local is not None and local == environment.get("WORLD_SIZE")


def _time_name(moment: float) -> str:
    return time.strftime("%Y%m%d-%H%M%S", time.localtime(moment))
