"""What a rehearsal on simulated GPUs found: peaks of each process and device, and whether they fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedRead:
    """The first line of the program that read a value which a real GPU would have computed; here it is zero."""

    file: str
    line: int
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePeak:
    """Highest levels of a device in one process, in bytes."""

    device: str
    allocated: int
    step: int
    """The step of the highest allocated bytes."""
    reserved: int
    outside: int
    """In use of the device beside the allocator: the CUDA context and buffers of NCCL."""
    capacity: int
    retries: int
    """How often the allocator had to give its cache back to go on."""
    others: int = 0
    """The most that other processes of the program had in use when this one asked for memory."""

    @property
    def room(self) -> int:
        """What the allocator can reserve at most."""
        return self.capacity - self.outside - self.others

    @property
    def headroom(self) -> int:
        """What is left of the device when most is reserved; negative if it does not fit."""
        return self.room - self.reserved


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessResult:
    """What one process of the program did on its devices."""

    rank: int
    world_size: int
    steps: int
    devices: tuple[DevicePeak, ...]
    out_of_memory: bool
    exception: str | None
    folder: str | None
    """Its run folder."""
    snapshots: tuple[str, ...] = ()
    first_read: ComputedRead | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """The result of a rehearsal."""

    program: str
    gpu: str
    gpus: int
    """GPUs that each process sees."""
    processes: tuple[ProcessResult, ...]
    """By rank."""
    seconds: float
    phase: str = ""
    """The phase of the highest peak."""
    by_category: Mapping[str, int] = field(default_factory=dict)
    """Bytes at the highest peak."""
    by_module: Mapping[str, int] = field(default_factory=dict)
    by_line: Mapping[str, int] = field(default_factory=dict)
    """Of the lines of the program that allocated them."""
    out_of_memory_report: str = ""
    needed: int | None = None
    """Where memory ran out: what the fullest device would need, in bytes, if a larger one was enough to see it."""
    notes: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether no process ran out of memory."""
        return not any(process.out_of_memory for process in self.processes)

    @property
    def worst(self) -> tuple[ProcessResult, DevicePeak]:
        """The process and device with the least memory left, those that ran out of it first."""
        both = [(process, device) for process in self.processes for device in process.devices]
        return min(both, key=lambda pair: (not pair[0].out_of_memory, pair[1].headroom))

    @property
    def peak_allocated(self) -> int:
        """Highest allocated bytes of the fullest device."""
        return self.worst[1].allocated

    @property
    def peak_reserved(self) -> int:
        """Highest reserved bytes of the fullest device."""
        return self.worst[1].reserved

    @property
    def headroom(self) -> int:
        """Bytes left on the fullest device; negative where it would need more than there are."""
        device = self.worst[1]
        return device.headroom if self.needed is None else device.capacity - self.needed


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One value that was tried."""

    value: int
    fits: bool
    reserved: int
    """Highest reserved bytes of the fullest device."""
    room: int
    """Bytes that the allocator can reserve there at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Largest:
    """The largest value that fits."""

    name: str
    value: int | None
    """``None`` if not even the smallest fits."""
    is_bounded: bool
    """Whether a larger one was seen not to fit; else the range ends there."""
    trials: tuple[Trial, ...]
    result: Rehearsal | None
    """The rehearsal with this value."""
