"""Finds the run that a process writes, by the live log that it holds open."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import psutil

from tbmem.errors import UsageError
from tbmem.model.files import MONITOR_LOG
from tbmem.sources.runs.catalog import run_folder

_PROC = Path("/proc")


def run_of_process(pid: int, proc: Path = _PROC) -> Path:
    """Folder of the run that a process writes, or one of its children where it is a launcher such as ``torchrun``.

    Args:
        pid: Process id on this machine.
        proc: Where the kernel describes processes; without it psutil is asked.

    Raises:
        UsageError: There is no such process, it may not be looked at, or none of them has a live log open.
    """
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        raise UsageError(f"{pid}: no such process, and no such file or folder") from None
    except psutil.AccessDenied:
        raise UsageError(f"{pid}: this process belongs to another user") from None
    hidden = False
    for member in family:
        try:
            for path in _open_files(member.pid, proc):
                if path.endswith(f"/{MONITOR_LOG}"):
                    return run_folder(Path(path))
        except (PermissionError, psutil.AccessDenied):
            hidden = True
        except (OSError, psutil.NoSuchProcess):
            continue  # it has ended meanwhile
    if hidden:
        raise UsageError(f"{pid}: the files of this process may not be read; run as its user, or name the run's folder")
    raise UsageError(
        f"{pid}: this process writes no live log ({MONITOR_LOG}): it is not under tbmem, or has monitor.log=false"
    )


def _open_files(pid: int, proc: Path) -> Iterator[str]:
    folder = proc / str(pid) / "fd"
    if not proc.joinpath("self").exists():
        yield from (file.path for file in psutil.Process(pid).open_files())
        return
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            yield os.readlink(folder / name)
