"""Records of an out-of-memory: the run's state, the failed request, its causes and the largest holders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from tbmem.model.finding import Finding
from tbmem.model.sample import MemorySample

MACHINE, CGROUP = "the machine", "cgroup"  # names of the host's limits beside those of setrlimit(2)


class RunContext(NamedTuple):
    """State of a run at one moment."""

    step: int
    findings: Sequence[Finding] = ()
    last: Mapping[str, MemorySample] = {}
    rank: int = 0

    @property
    def in_use(self) -> int:
        """Bytes in use in the last step, at most; where no peak is exact, as on the CPU, at its end."""
        exact = (one.allocated if one.peak_allocated is None else one.peak_allocated for one in self.last.values())
        return max((value for value in exact if value is not None), default=0)


class Cause(str, Enum):
    """Why a request failed."""

    CAPACITY = "capacity"  # live memory and the request exceed the capacity
    FRAGMENTATION = "fragmentation"
    OTHER_PROCESSES = "other_processes"
    LEAK = "leak"  # the memory taken by a reported leak would have been enough


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit of a process's memory, in bytes."""

    name: str  # 'the device', 'cgroup', 'RLIMIT_AS', 'the machine'
    total: int
    free: int

    @property
    def counts_addresses(self) -> bool:
        """Whether it is one of setrlimit(2), under which memory counts once it was asked for."""
        return self.name.startswith("RLIMIT")


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorUsage:
    """Memory of a caching allocator, in bytes."""

    reserved: int
    active: int
    cached: int = 0  # in unused segments or pages, which the allocator releases before it raises
    fragmented: int = 0  # inactive blocks between used ones
    largest_free: int | None = None  # the largest free block; None where the blocks are unknown

    @property
    def free(self) -> int:
        """Reserved and not in use."""
        return self.cached + self.fragmented


@dataclass(frozen=True, slots=True, kw_only=True)
class OomEvent:
    """One failed request, or a limit that comes near."""

    device: str
    step: int
    requested: int | None  # bytes; None where unknown (a plain MemoryError)
    limits: tuple[Limit, ...] = ()  # the tightest first; empty where unknown
    device_free: int | None = None  # free bytes of the device, whatever this process may use of it
    device_total: int | None = None
    pieces: AllocatorUsage | None = None
    process: int | None = None  # bytes of this process: resident or reserved on the device
    line: str = ""  # the user's line that requested it, 'train.py:31 in forward()'
    error: str = ""

    @property
    def free(self) -> int | None:
        """Bytes left under the tightest limit; ``None`` if unknown."""
        return self.limits[0].free if self.limits else None

    @property
    def only_near(self) -> bool:
        """Whether no request has failed yet."""
        return self.requested is None and not self.error


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveMemory:
    """A range of memory with a named holder."""

    device: str
    address: int  # negative for what is no tensor's storage
    bytes: int
    holder: str  # its name for the user: "list 'history' in train()", 'parameters of Net'
    part: str = ""


GRAPH_NODES = "nodes of its graph"
"""Part of what a tensor holds: autograd's nodes themselves."""
SAVED_BY = "saved by"
"""How the part of what a tensor holds begins that such a node has saved, before the node's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OomHolder:
    """One of the largest holders."""

    name: str
    bytes: int
    count: int
    """Tensors, arrays and blocks; the nodes of their graphs are not counted."""
    lines: tuple[str, ...] = ()
    largest: str = ""  # name of the largest part, if several have names


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One cause of a failed request."""

    cause: Cause
    bytes: int  # bytes that would have been free without it
    enough: bool  # whether the request would have fitted then
    text: str
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OomReport:
    """An out-of-memory with its causes and holders."""

    shortage: OomEvent
    reasons: tuple[Reason, ...]
    holdings: tuple[OomHolder, ...] = ()
    seen: int = 0
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "requested_bytes": self.shortage.requested,
            "free_bytes": self.shortage.free,
            "device_free_bytes": self.shortage.device_free,
            "device_total_bytes": self.shortage.device_total,
            "line": self.shortage.line,
            "limits": msgspec.to_builtins(self.shortage.limits),
            "pieces": msgspec.to_builtins(self.shortage.pieces),
            "reasons": msgspec.to_builtins(self.reasons),
            "holders": msgspec.to_builtins(self.holdings),
            "seen_bytes": self.seen,
            "notes": list(self.notes),
        }
