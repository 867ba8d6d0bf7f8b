"""MemorySample: the memory counters of one step and device."""

from __future__ import annotations

import re
from typing import NamedTuple

INDEXED_DEVICE = re.compile(r"cpu|mps|[a-z]\w*:\d+")
"""Name of one device, as samples have it: torch's ``'cuda'`` is any of them."""


class MemorySample(NamedTuple):
    """Memory of one device and its host at the end of a training step, in bytes.

    A counter that the device does not have is ``None``, never 0 or -1. A named tuple, since one is created at every
    step: a frozen dataclass takes four times as long.
    """

    step: int
    """Number of the step that ended; the first step of a run is 1."""
    time: float
    """Unix time of the reading, in seconds."""
    device: str
    """``'cuda:0'``, ``'xpu:1'``, ``'mps'`` or ``'cpu'``."""
    rank: int = 0
    allocated: int | None = None
    """Allocated by tensors (accelerator) or malloc (CPU)."""
    reserved: int | None = None
    """Reserved by the caching allocator (accelerator) or by malloc (CPU), cache included."""
    peak_allocated: int | None = None
    """Largest ``allocated`` since the previous sample."""
    peak_reserved: int | None = None
    """Largest ``reserved`` since the previous sample."""
    active: int | None = None
    """In blocks that are allocated, or still in use by another stream."""
    inactive_split: int | None = None
    """In free blocks of segments that are partly in use."""
    live_blocks: int | None = None
    alloc_retries: int | None = None
    """Times the allocator released its cache and retried; counted, as ``ooms``, since the process began."""
    ooms: int | None = None
    device_used: int | None = None
    """Used on the device by all processes; read at most once per logging interval."""
    device_total: int | None = None
    """Capacity of the device; for the CPU the smaller of the machine's memory and the cgroup's limit."""
    profiled: bool = False
    """Whether the step ran in a profiler window or under evidence, whose memory is in the host's figures."""
    updated: bool | None = None
    """Whether an optimizer has stepped since the previous sample; ``None`` where none is known."""
    # from here on in the order of ``HostMemory.counters``
    host_rss: int | None = None
    host_peak_rss: int | None = None
    """Largest resident memory of this process since the previous sample, where the kernel provides it."""
    host_available: int | None = None
    """Available host memory: the smaller of the machine's and the cgroup's."""
    workers_rss: int | None = None
    """Resident memory of all child processes (DataLoader workers), at most one second old."""
    host_private: int | None = None
    """The part of ``host_rss`` that is shared with no other process."""
    workers_private: int | None = None
    """Unshared memory of all child processes, including pages copied on write."""
    host_heap: int | None = None
    """Allocated by malloc in this process, read beside an accelerator (with the first of several)."""
    host_own: int | None = None
    """The part of ``host_rss`` that tbmem itself has added, as far as it is known."""

    @property
    def peak(self) -> int | None:
        """The step's peak: the device's own, for the CPU the host's; ``None`` if neither is known."""
        if self.peak_allocated is not None:
            return self.peak_allocated
        return self.host_peak_rss if self.device == "cpu" else None

    @property
    def holds_profiler(self) -> bool:
        """Whether the profiler's own memory is included: on the CPU it is in the same heap."""
        return self.profiled and self.device == "cpu"

    @property
    def highest(self) -> int | None:
        """The peak if known, else the level after the step."""
        return self.allocated if self.peak is None else self.peak


class DeviceReading(NamedTuple):
    """A device's own counters, in the order of ``MemorySample``."""

    allocated: int | None = None
    reserved: int | None = None
    peak_allocated: int | None = None
    peak_reserved: int | None = None
    active: int | None = None
    inactive_split: int | None = None
    live_blocks: int | None = None
    alloc_retries: int | None = None
    ooms: int | None = None


NOTHING = DeviceReading()
