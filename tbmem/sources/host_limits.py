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


def host_state(root: Path = Path("/")) -> HostState:
    """What this process may still have: of the machine, its control group and its own limits (``ulimit``).

    Args:
        root: Where ``proc`` and ``sys`` hang, for the control group; a test gives its own tree.
    """
    memory, process = psutil.virtual_memory(), psutil.Process()
    limits = [Limit(name=MACHINE, total=int(memory.total), free=int(memory.available)), *_own_limits()]
    group = read_cgroup_memory(root)
    if group is not None:
        limits.append(Limit(name=CGROUP, total=group.limit, free=group.available))
    return HostState(
        limits=tuple(sorted(limits, key=lambda limit: limit.free)),
        total=int(memory.total),
        free=int(memory.available),
        resident=int(process.memory_info().rss),
    )


def _own_limits() -> list[Limit]:
    """RLIMIT_AS and RLIMIT_DATA, setrlimit(2), where they are set."""
    if resource is None:
        return []
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return []
    found = []
    for name, counter in (("RLIMIT_AS", "VmSize"), ("RLIMIT_DATA", "VmData")):
        soft, _hard = resource.getrlimit(getattr(resource, name))
        used = re.search(rf"^{counter}:\s+(\d+) kB", status, re.MULTILINE)
        if soft != resource.RLIM_INFINITY and used is not None:
            found.append(Limit(name=name, total=soft, free=max(soft - 1024 * int(used[1]), 0)))
    return found
