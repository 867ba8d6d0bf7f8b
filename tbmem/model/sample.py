"""The step series: one frozen MemorySample per step and device."""

from __future__ import annotations

from typing import NamedTuple


class MemorySample(NamedTuple):
    """What one device and its host held when a training step ended.

    All sizes are bytes; a counter that the device does not have is ``None``, never 0 or -1. A named tuple because
    one is made at every step: it cannot be changed, and costs a quarter of a frozen dataclass.
    """

    step: int
    """Number of the step that has just ended; the first step of a run is 1."""
    time: float
    """Unix time of the reading, in seconds."""
    device: str
    """``'cuda:0'``, ``'xpu:1'``, ``'mps'`` or ``'cpu'``."""
    rank: int = 0
    """Global rank of the process."""
    allocated: int | None = None
    """Held by tensors (accelerator) or handed out by malloc (CPU)."""
    reserved: int | None = None
    """Held by the caching allocator (accelerator) or by malloc (CPU), cache included."""
    peak_allocated: int | None = None
    """Largest ``allocated`` since the previous sample."""
    peak_reserved: int | None = None
    """Largest ``reserved`` since the previous sample."""
    active: int | None = None
    """In blocks that are allocated or wait for another stream before they are free."""
    inactive_split: int | None = None
    """In free pieces of segments that are partly in use: the part that fragments."""
    live_blocks: int | None = None
    """How many allocations are alive."""
    alloc_retries: int | None = None
    """How often the allocator had to release its cache and try again, since the process began."""
    ooms: int | None = None
    """How often an allocation failed, since the process began."""
    device_used: int | None = None
    """Used on the device by all processes together; read at most once every logging interval."""
    device_total: int | None = None
    """Capacity of the device; for the CPU the smaller of the machine's memory and the cgroup's limit."""
    host_rss: int | None = None
    """Resident memory of this process."""
    host_peak_rss: int | None = None
    """Largest resident memory of this process since the previous sample, where the kernel tells."""
    host_available: int | None = None
    """What the host can still give: the smaller of the machine's and the cgroup's figure."""
    workers_rss: int | None = None
    """Resident memory of all child processes (DataLoader workers), at most one second old."""
    profiled: bool = False
    """The step ran under a profiler window (or under evidence), whose own memory is in the host's figures."""
    updated: bool | None = None
    """Whether an optimizer has stepped since the previous sample; ``None`` where none is known."""
    host_private: int | None = None
    """Of ``host_rss``, what this process shares with nobody."""
    workers_private: int | None = None
    """Memory of all child processes that they share with nobody: what copy-on-write has copied is in it."""

    @property
    def peak(self) -> int | None:
        """The step's highest level: the device's own peak, for the CPU the host's; ``None`` if nobody tells."""
        if self.peak_allocated is not None:
            return self.peak_allocated
        return self.host_peak_rss if self.device == "cpu" else None

    @property
    def holds_profiler(self) -> bool:
        """Whether the profiler's own memory is in the figures: on the CPU it lies in the same heap."""
        return self.profiled and self.device == "cpu"

    @property
    def highest(self) -> int | None:
        """The peak where there is one, else the level after the step."""
        return self.allocated if self.peak is None else self.peak


class DeviceReading(NamedTuple):
    """A device's own counters, in ``MemorySample``'s order and with its meanings."""

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
"""No counter was read."""
