"""Memory limits of this process (machine, control group, ``ulimit``) and the free memory up to each."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import psutil

from tbmem.model.oom import CGROUP, MACHINE, Limit

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

_OWN = (("RLIMIT_AS", "VmSize"), ("RLIMIT_DATA", "VmData"))
"""Limits of setrlimit(2), and the counters of proc_pid_status(5) that they end."""
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = ("memory.max", "memory.current", "inactive_file")
"""Files of a control group: its limit, what it uses, and the line of ``memory.stat`` that can be reclaimed."""
_NO_LIMIT = 1 << 60  # cgroup v1 writes 'no limit' as a number near 2**63


class HostState(NamedTuple):
    """The host at one moment, in bytes."""

    limits: tuple[Limit, ...]  # the tightest first
    total: int  # of the machine
    free: int  # of the machine, what reclaiming would give included
    resident: int  # of this process


def host_limits(root: Path = Path("/")) -> tuple[Limit, ...]:
    """Limits of the machine, the control group (in the files under ``root``) and the process, the tightest first."""
    memory = psutil.virtual_memory()
    machine = Limit(name=MACHINE, total=int(memory.total), free=int(memory.available))
    limits = [machine, *_own_limits(), read_cgroup_memory(root)]
    return tuple(sorted([limit for limit in limits if limit is not None], key=lambda limit: limit.free))


def host_state(root: Path = Path("/")) -> HostState:
    """The limits, with the memory of the machine and of this process."""
    limits = host_limits(root)
    machine = next(limit for limit in limits if limit.name == MACHINE)
    resident = int(psutil.Process().memory_info().rss)
    return HostState(limits=limits, total=machine.total, free=machine.free, resident=resident)


def _own_limits() -> list[Limit]:
    """RLIMIT_AS and RLIMIT_DATA, setrlimit(2), where they are set: they count addresses, not resident pages."""
    if resource is None:
        return []
    limits = []
    for name, counter in _OWN:
        end = resource.getrlimit(getattr(resource, name))[0]
        used = None if end == resource.RLIM_INFINITY else _status_bytes(counter)
        if used is not None:
            limits.append(Limit(name=name, total=end, free=max(end - used, 0)))
    return limits


def _status_bytes(counter: str) -> int | None:
    """A counter of proc_pid_status(5), ``None`` where there is none."""
    try:
        match = re.search(rf"^{counter}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    except OSError:
        return None
    return None if match is None else 1024 * int(match[1])


def read_cgroup_memory(root: Path = Path("/")) -> Limit | None:
    """The tightest limit of the control groups up to the root, if any; what can be reclaimed counts as free."""
    limits = [limit for folder, names in _folders(root) if (limit := _limit_of(folder, names)) is not None]
    return min(limits, key=lambda limit: limit.free, default=None)


def _folders(root: Path) -> list[tuple[Path, tuple[str, str, str]]]:
    """Every folder from the process's own group up to the hierarchy's top, with its file names."""
    try:
        return _folders_of((root / "proc/self/cgroup").read_text(), root)
    except OSError:
        return []


@lru_cache(maxsize=1)
def _folders_of(groups: str, root: Path) -> list[tuple[Path, tuple[str, str, str]]]:
    folders = []
    for line in groups.splitlines():
        _, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if controllers == "":
            top, names = root / "sys/fs/cgroup", _V2
        elif "memory" in controllers.split(","):
            top, names = root / "sys/fs/cgroup/memory", _V1
        else:
            continue
        folder = top / path.lstrip("/")
        folders += [(parent, names) for parent in (folder, *folder.parents) if parent.is_relative_to(top)]
    return folders


def _limit_of(folder: Path, names: tuple[str, str, str]) -> Limit | None:
    limit_name, used_name, reclaimable_name = names
    try:
        total = int((folder / limit_name).read_text())
        used = int((folder / used_name).read_text())
    except (OSError, ValueError):
        return None
    if total >= _NO_LIMIT:
        return None
    reclaimable = 0
    with suppress(OSError, ValueError, IndexError):
        lines = [line.split() for line in (folder / "memory.stat").read_text().splitlines()]
        reclaimable = sum(int(line[1]) for line in lines if line[:1] == [reclaimable_name])
    return Limit(name=CGROUP, total=total, free=max(total - used + reclaimable, 0))
