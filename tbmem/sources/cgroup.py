"""The cgroup files of this process go in; its memory limit and what is left of it come out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_NO_LIMIT = 1 << 60
"""cgroup v1 writes 'no limit' as a number near 2**63."""


@dataclass(frozen=True, slots=True)
class CgroupMemory:
    """The tightest memory limit above this process."""

    limit: int
    """Bytes that the group may use."""
    available: int
    """Bytes left: the limit less what is used and cannot be reclaimed."""


def read_cgroup_memory(root: Path = Path("/")) -> CgroupMemory | None:
    """The memory that the process's control groups still allow.

    Args:
        root: Where ``proc`` and ``sys`` hang; a test gives its own tree.

    Returns:
        The tightest of all limits from the process's group up to the root, or ``None`` where none is set
        (cgroup v2 ``memory.max``, v1 ``memory.limit_in_bytes``).
    """
    tightest: CgroupMemory | None = None
    for folder, names in _folders(root):
        found = _read_folder(folder, names)
        if found is not None and (tightest is None or found.available < tightest.available):
            tightest = found
    return tightest


_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = ("memory.max", "memory.current", "inactive_file")


def _folders(root: Path) -> list[tuple[Path, tuple[str, str, str]]]:
    """Every folder from the process's own group up to the hierarchy's top, with its file names."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if controllers == "":
            top, names = root / "sys/fs/cgroup", _V2
        elif "memory" in controllers.split(","):
            top, names = root / "sys/fs/cgroup/memory", _V1
        else:
            continue
        folder = top / path.lstrip("/")
        found += [(each, names) for each in (folder, *folder.parents) if each.is_relative_to(top)]
    return found


def _read_folder(folder: Path, names: tuple[str, str, str]) -> CgroupMemory | None:
    limit_name, used_name, reclaimable_name = names
    try:
        limit = int((folder / limit_name).read_text())
        used = int((folder / used_name).read_text())
    except (OSError, ValueError):
        return None
    if limit >= _NO_LIMIT:
        return None
    held = used - _reclaimable(folder / "memory.stat", reclaimable_name)
    return CgroupMemory(limit=limit, available=max(limit - held, 0))


def _reclaimable(statistics: Path, name: str) -> int:
    """Page cache that the kernel would give back first; 0 where it does not tell."""
    try:
        lines = [line.split() for line in statistics.read_text().splitlines()]
        return sum(int(line[1]) for line in lines if line[:1] == [name])
    except (OSError, ValueError, IndexError):
        return 0
