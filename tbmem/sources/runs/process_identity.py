"""What tells this process from every other, and whether a process that was described so is alive."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PROC = Path("/proc")
_STATE, _STARTED = 0, 19
"""Places in ``/proc/<pid>/stat`` after the name, proc_pid_stat(5): the state, and the start in ticks since boot."""
_DEAD = (b"Z", b"X")


def this_process(proc: Path = _PROC) -> dict[str, Any]:
    """Number, start, and where the number counts: a container has numbers of its own, and each boot begins anew.

    Returns:
        Empty where the system does not tell all of it.
    """
    try:
        started = _status(proc / "self")[_STARTED].decode()
        return {"pid": os.getpid(), "started": started, "numbers": _numbers(proc)}
    except (OSError, IndexError):
        return {}


def is_alive(process: Mapping[str, Any], proc: Path = _PROC) -> bool | None:
    """Whether a process is there, as far as that can be known from here.

    Returns:
        ``None`` where it cannot be known: the process ran on another machine or in another container.
    """
    pid = process.get("pid")
    try:
        if not isinstance(pid, int) or pid <= 0 or process.get("numbers") != _numbers(proc):
            return None
        os.kill(pid, 0)
        status = _status(proc / str(pid))
        return status[_STATE] not in _DEAD and status[_STARTED].decode() == process.get("started")
    except ProcessLookupError:
        return False
    except (OSError, IndexError, OverflowError):
        return None  # somebody else's process, which may be hidden


def _numbers(proc: Path) -> str:
    """What names the boot and the namespace in which a process's number means something."""
    boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink(proc / 'self/ns/pid')}"


def _status(folder: Path) -> list[bytes]:
    """The fields after the name, which may hold anything."""
    return (folder / "stat").read_bytes().rpartition(b")")[2].split()
