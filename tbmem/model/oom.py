"""Records of the moment at which memory ran out: what the run knew, why it did, and who holds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, NamedTuple

from tbmem.model.finding import Finding
from tbmem.model.sample import MemorySample

MACHINE, CGROUP = "the machine", "cgroup"
"""Names of limits of the host, beside those of setrlimit(2)."""


class RunContext(NamedTuple):
    """What a run knows of itself at a moment."""

    step: int
    """The step that runs."""
    findings: Sequence[Finding] = ()
    last: Mapping[str, MemorySample] = {}
    """The latest sample of each device."""
    rank: int = 0


class Cause(str, Enum):
    """Why a request did not fit."""

    CAPACITY = "capacity"
    """What is alive and what was asked for are more than there is."""
    FRAGMENTATION = "fragmentation"
    """Enough was free, in pieces that fit no request."""
    OTHER_PROCESSES = "other_processes"
    LEAK = "leak"
    """What a leak that was flagged has taken would have been enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Something that ends a process's memory."""

    name: str
    """``'the device'``, ``'cgroup'``, ``'RLIMIT_AS'``, ``'the machine'``."""
    total: int
    """Bytes in all."""
    free: int
    """Bytes that are left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorUsage:
    """What a caching allocator holds of a device, in bytes."""

    reserved: int
    active: int
    """In blocks that are in use, or wait for another stream."""
    cached: int = 0
    """In segments without any used block, or whole pages: the allocator gives them back before it gives up."""
    fragmented: int = 0
    """Inactive blocks between used ones."""
    largest_free: int | None = None
    """The largest free block; ``None`` where the blocks are not known."""

    @property
    def free(self) -> int:
        """All that is reserved and not in use."""
        return self.cached + self.fragmented


@dataclass(frozen=True, slots=True, kw_only=True)
class OomEvent:
    """One request that failed."""

    device: str
    """``'cuda:0'`` or ``'cpu'``."""
    step: int
    requested: int | None
    """Bytes; ``None`` where nobody says (a plain MemoryError)."""
    limits: tuple[Limit, ...] = ()
    """The tightest first; empty where nothing is known."""
    device_free: int | None = None
    """Bytes that the device itself had free, whatever this process may use of it."""
    device_total: int | None = None
    pieces: AllocatorUsage | None = None
    """``None`` where no caching allocator is at work, or it could not be asked."""
    process: int | None = None
    """Bytes of this process: resident, or reserved on the device."""
    line: str = ""
    """The user's line that asked, ``'train.py:31 in forward()'``."""
    error: str = ""
    """Class of the exception; empty where none is known yet."""

    @property
    def free(self) -> int | None:
        """Bytes that the request could have had from outside; ``None`` if not known."""
        return self.limits[0].free if self.limits else None

    @property
    def only_near(self) -> bool:
        """Whether no request has failed yet: a limit comes near."""
        return self.requested is None and not self.error


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveMemory:
    """A stretch of memory that something with a name holds."""

    device: str
    address: int
    bytes: int
    holder: str
    """What a user calls it: ``"list 'history' in train()"``, ``'parameters of Net'``."""
    part: str = ""
    """Its own name in there: ``'head.weight'``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OomHolder:
    """One of the largest holders."""

    name: str
    bytes: int
    count: int
    """Blocks, or tensors."""
    lines: tuple[str, ...] = ()
    """Where it was allocated, or made; empty where that is not known."""
    largest: str = ""
    """Name of the largest part, if there are several with names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One thing that kept the request from fitting."""

    cause: Cause
    bytes: int
    """What would have been free without it."""
    enough: bool
    """Whether the request would have fitted then."""
    text: str
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OomReport:
    """A shortage, explained."""

    shortage: OomEvent
    reasons: tuple[Reason, ...]
    """The one that says most first."""
    holdings: tuple[OomHolder, ...] = ()
    """The largest first, ten at most."""
    seen: int = 0
    """Bytes that all holdings have together, those left out included."""
    notes: tuple[str, ...] = ()
    """What could not be seen, one sentence each."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "requested_bytes": self.shortage.requested,
            "free_bytes": self.shortage.free,
            "device_free_bytes": self.shortage.device_free,
            "device_total_bytes": self.shortage.device_total,
            "line": self.shortage.line,
            "limits": [asdict(limit) for limit in self.shortage.limits],
            "pieces": None if self.shortage.pieces is None else asdict(self.shortage.pieces),
            "reasons": [{**asdict(reason), "cause": reason.cause.value} for reason in self.reasons],
            "holders": [{**asdict(holding), "lines": list(holding.lines)} for holding in self.holdings],
            "seen_bytes": self.seen,
            "notes": list(self.notes),
        }
