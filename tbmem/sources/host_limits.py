"""The process's limits go in; what is left of each comes out, the tightest first."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import psutil

from tbmem.model.shortage import CGROUP, MACHINE, Limit
from tbmem.sources.cgroup import read_cgroup_memory

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

_OWN = (("RLIMIT_AS", "VmSize"), ("RLIMIT_DATA", "VmData"))
"""Limits of setrlimit(2), and the counters of proc_pid_status(5) that they end."""


class HostState(NamedTuple):
    """The host at one moment, in bytes."""

    limits: tuple[Limit, ...]
    """The tightest first."""
    total: int
    """Of the machine."""
    free: int
    """Of the machine, what reclaiming would give included."""
    resident: int
    """Of this process."""


def host_limits(root: Path = Path("/")) -> tuple[Limit, ...]:
    """What this process may still have: of the machine, its control group and its own limits (``ulimit``).

    Args:
        root: Where ``proc`` and ``sys`` hang, for the control group; a test gives its own tree.

    Returns:
        The tightest first; the machine is always among them.
    """
    memory = psutil.virtual_memory()
    limits = [Limit(name=MACHINE, total=int(memory.total), free=int(memory.available)), *_own_limits()]
    group = read_cgroup_memory(root)
    if group is not None:
        limits.append(Limit(name=CGROUP, total=group.limit, free=group.available))
    return tuple(sorted(limits, key=lambda limit: limit.free))


def host_state(root: Path = Path("/")) -> HostState:
    """The limits, with what the machine and this process have.

    Args:
        root: As for ``host_limits``.
    """
    limits = host_limits(root)
    machine = next(limit for limit in limits if limit.name == MACHINE)
    resident = int(psutil.Process().memory_info().rss)
    return HostState(limits=limits, total=machine.total, free=machine.free, resident=resident)


def _own_limits() -> list[Limit]:
    """RLIMIT_AS and RLIMIT_DATA, setrlimit(2), where they are set: they count addresses, not resident pages."""
    if resource is None:
        return []
    ends = [(name, counter, resource.getrlimit(getattr(resource, name))[0]) for name, counter in _OWN]
    ends = [each for each in ends if each[-1] != resource.RLIM_INFINITY]
    try:
        status = Path("/proc/self/status").read_text() if ends else ""
    except OSError:
        return []
    found = []
    for name, counter, end in ends:
        used = re.search(rf"^{counter}:\s+(\d+) kB", status, re.MULTILINE)
        if used is not None:
            found.append(Limit(name=name, total=end, free=max(end - 1024 * int(used[1]), 0)))
    return found
