"""Identity of this process, and whether a process with a logged identity is alive."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PROC = Path("/proc")
_STATE, _STARTED = 0, 19
"""Fields of ``/proc/<pid>/stat`` after the name, proc_pid_stat(5): the state, and the start in ticks since boot."""
_DEAD = (b"Z", b"X")


def this_process(proc: Path = _PROC) -> dict[str, Any]:
    """Process id, start time, and the boot and PID namespace in which the id is valid; empty where one is unknown."""
    try:
        started = _status(proc / "self")[_STARTED].decode()
        return {"pid": os.getpid(), "started": started, "numbers": _namespace(proc)}
    except (OSError, IndexError):
        return {}


def is_alive(process: Mapping[str, Any], proc: Path = _PROC) -> bool | None:
    """Whether a process exists; ``None`` where it ran on another machine or in another container."""
    pid = process.get("pid")
    try:
        if not isinstance(pid, int) or pid <= 0 or process.get("numbers") != _namespace(proc):
            return None
        os.kill(pid, 0)
        status = _status(proc / str(pid))
        return status[_STATE] not in _DEAD and status[_STARTED].decode() == process.get("started")
    except ProcessLookupError:
        return False
    except (OSError, IndexError, OverflowError):
        return None  # a process of another user may be hidden


def _namespace(proc: Path) -> str:
    """The boot and the PID namespace in which a process id is valid."""
    boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink(proc / 'self/ns/pid')}"


def _status(folder: Path) -> list[bytes]:
    """The fields after the name, which may contain spaces and brackets."""
    return (folder / "stat").read_bytes().rpartition(b")")[2].split()
