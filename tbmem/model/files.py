"""Names of the files in a run folder, and atomic writing of files."""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tbmem.errors import RunFolderError

PLUGIN_FOLDER = "plugins/tbmem"  # TensorBoard's folder for the files of a plugin, relative to the run folder
MONITOR_LOG = f"{PLUGIN_FOLDER}/monitor.jsonl"
TRACE_SUFFIX = ".pt.trace.json.gz"  # the suffix that torch-tb-profiler looks for
SNAPSHOT_SUFFIX = ".snapshot.pickle"
SNAPSHOT_PROTOCOL = 4  # the newest pickle protocol that the viewer at pytorch.org/memory_viz reads (pytorch#183842)
TIMELINE_SUFFIX = ".tbmem.npz"  # allocation timeline of an estimate, or exported from any recording
ESTIMATE_SUFFIX = ".estimate.json"  # figures of an estimate, beside its timeline of the same stem
ADDRESS_BOOK_SUFFIX = ".addresses.npz"  # address book, beside the trace or snapshot of the same stem
PARTIAL_SUFFIX = ".partial"  # suffix of a file until it is complete, unknown to every viewer
_CHUNK = 1 << 18  # of which the interpreter lock is taken once each
_COMPRESSION = 3  # of a trace, beside the training: two thirds of the time of level 4, and files are 9 % larger


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path that is renamed to ``path`` at the end, or deleted after an error.

    A pipe or a device (``/dev/null``) is written to directly: a rename would replace it.
    """
    if path.exists() and not path.is_file():
        with _reader_of(path):
            yield path
        return
    partial = path.with_name(f"{path.name}.{os.getpid()}{PARTIAL_SUFFIX}")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


@contextmanager
def _reader_of(path: Path) -> Iterator[None]:
    """Hold a named pipe open that is written to; without a reader, opening it would wait for one."""
    if not path.is_fifo():
        yield
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        raise OSError(errno.ENXIO, "a named pipe that nobody reads", str(path)) from error
    try:
        yield
    finally:
        os.close(descriptor)


def write_file(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write a file completely or not at all.

    Raises:
        RunFolderError: It cannot be written.
    """
    target = Path(path).expanduser()
    try:
        with atomic_write(target) as partial:
            partial.write_bytes(data)
    except OSError as error:
        is_missing = not target.parent.is_dir()
        reason = f"there is no folder {target.parent}" if is_missing else _why_not_made(error)
        raise RunFolderError(f"{path}: cannot be written: {reason}") from error
    return target


def _why_not_made(error: OSError) -> str:
    if isinstance(error, IsADirectoryError):
        return "it is a folder; name a file in it"
    # /proc says so of every file that is to be made in it
    is_refused = isinstance(error, FileNotFoundError)
    return "no file can be made there; name another folder" if is_refused else error.strerror or str(error)


def compress(source: BinaryIO, target: Path) -> None:
    """Gzip the rest of an open file into ``target``."""
    with gzip.open(target, "wb", compresslevel=_COMPRESSION) as packed:
        shutil.copyfileobj(source, packed, _CHUNK)


def worker_name(host: str, rank: int) -> str:
    """Name of one process of a run: ``'node7_rank3'``."""
    return f"{re.sub(r'[^A-Za-z0-9_-]+', '-', host) or 'host'}_rank{rank}"


def trace_name(worker: str, time_ns: int) -> str:
    """``<worker>.<ns>.pt.trace.json.gz``; the time orders the windows of a worker."""
    return f"{worker}.{time_ns}{TRACE_SUFFIX}"


def snapshot_name(worker: str, label: str | int) -> str:
    """``<worker>.<label>.snapshot.pickle``; the label is the window's number or the user's."""
    return f"{worker}.{re.sub(r'[^A-Za-z0-9_-]+', '-', str(label)) or 'snapshot'}{SNAPSHOT_SUFFIX}"


def address_book_name(stem: str) -> str:
    """Name of the address book that belongs to the trace or snapshot ``stem``."""
    for suffix in (TRACE_SUFFIX, TRACE_SUFFIX.removesuffix(".gz"), SNAPSHOT_SUFFIX):
        stem = stem.removesuffix(suffix)
    return stem + ADDRESS_BOOK_SUFFIX


def evidence_name(number: int) -> str:
    """``plugins/tbmem/evidence-<number>.json``, numbered by suspicion."""
    return f"{PLUGIN_FOLDER}/evidence-{number}.json"


def oom_report_name(worker: str, word: str) -> str:
    """``<worker>.<word>.txt``: the report on an out-of-memory (``'oom'``) or a near one (``'near-limit'``)."""
    return f"{worker}.{word}.txt"


def owner_name(rank: int | None = None) -> str:
    """``plugins/tbmem/owner``: the run, or launch of a job, that owns the folder; with a rank: that it takes part."""
    return f"{PLUGIN_FOLDER}/owner" + (f".rank{rank}" if rank is not None else "")


def rank_folder(rank: int | str) -> str:
    """Sub-folder of a rank, ``'rank3'``, where several ranks write; of ``'*'`` the pattern of them all."""
    return f"rank{rank}"
