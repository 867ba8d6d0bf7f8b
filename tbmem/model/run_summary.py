"""RunSummary: findings, peaks, files and costs at the end of a run."""

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
    """The field of ``MemorySample`` it was read from."""
    total: int | None = None
    """Capacity in bytes."""

    @property
    def headroom(self) -> int | None:
        """Bytes of the capacity left at the peak; ``None`` where the capacity is unknown."""
        return None if self.total is None else max(self.total - self.bytes, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilerCost:
    """Time and memory that the profiler took from the run."""

    windows: int
    recorded_steps: int
    recorded_step_seconds: float
    """Median time of a recorded step."""
    plain_step_seconds: float | None
    """Median time of a step without the profiler; ``None`` if there was none."""
    writing_seconds: float
    """Time in which training waited for records to be collected and written."""
    host_bytes: int | None
    """Most resident memory that a window added, including its records and their writing."""
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
    """Summary of a run at its end."""

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
    """Class name of the exception that ended the loop."""
    out_of_memory: bool = False
