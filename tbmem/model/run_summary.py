"""The end of a run: what was seen, judged and written, as one frozen record."""

from __future__ import annotations

from dataclasses import dataclass

from tbmem.model.finding import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The highest level of a device in a run."""

    device: str
    rank: int = 0
    bytes: int
    """Allocated by tensors; on the CPU the resident memory of the process, without steps that the profiler recorded."""
    step: int
    counter: str
    """Field of ``MemorySample`` that it was read from."""
    total: int | None = None
    """Capacity in bytes."""

    @property
    def headroom(self) -> int | None:
        """What of the capacity was left at the peak, in bytes; ``None`` where the capacity is not known."""
        return None if self.total is None else max(self.total - self.bytes, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilerCost:
    """What the profiler itself took from the run."""

    windows: int
    recorded_steps: int
    recorded_step_seconds: float
    """Median time of a step that was recorded, in seconds."""
    plain_step_seconds: float | None
    """Median time of a step on which nothing was on; ``None`` if there was none."""
    writing_seconds: float
    """Time in which training stood still because records were collected and written."""
    host_bytes: int | None
    """Most resident memory that a window added, records and writing included."""
    trace_bytes: int
    """Size of all files written."""

    @property
    def slowdown(self) -> float | None:
        """How many times longer a recorded step took."""
        if not self.plain_step_seconds:
            return None
        return self.recorded_step_seconds / self.plain_step_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """Everything that the end of a run tells."""

    logdir: str
    folder: str
    rank: int
    steps: int
    seconds: float
    verdicts: tuple[Finding, ...]
    """One finding per device."""
    findings: tuple[Finding, ...]
    """All findings in order."""
    peaks: tuple[Peak, ...]
    traces: tuple[str, ...]
    snapshots: tuple[str, ...]
    address_books: tuple[str, ...]
    monitor_log: str | None
    profiler: ProfilerCost | None
    scalars: bool = False
    """Whether TensorBoard scalars were written."""
    problems: tuple[str, ...] = ()
    """Parts that were switched off, and why."""
    exception: str | None = None
    """The exception that ended the loop, as its class name."""
    out_of_memory: bool = False
    """Whether it ended because memory ran out."""
