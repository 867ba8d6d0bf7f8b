"""RunSummary: findings, peaks, files and costs at the end of a run."""

from __future__ import annotations

from dataclasses import dataclass

from tbmem.model.finding import Finding
from tbmem.model.html_display import HtmlDisplay
from tbmem.units import format_bytes, format_duration

WHAT_COUNTS = "a step counts where step() is called, under tbmem run where an optimizer steps"
"""For a run without a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The highest level of a device in a run."""

    device: str
    rank: int = 0
    bytes: int
    """Allocated by tensors; on the CPU the resident memory, of steps in profiler windows only that of spikes."""
    step: int
    counter: str
    """The field of ``MemorySample`` it was read from."""
    total: int | None = None
    own: int = 0
    """Bytes of it that tbmem itself has added to a resident memory, as far as they are known."""
    recorded: int | None = None
    """Bytes of a higher step of the CPU that the profiler recorded: its records are part of them."""
    recorded_step: int | None = None
    ended: bool = True
    """Whether its step has: memory may run out in one, and what comes after the last one never ends a step."""

    @property
    def when(self) -> str:
        """``'in step 47'``; of what came after the last step, such as an evaluation, ``'after step 94'``."""
        return f"in step {self.step}" if self.ended else f"after step {self.step - 1}"

    @property
    def of_the_program(self) -> int:
        """Bytes of it that are the program's."""
        return max(self.bytes - self.own, 0)

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
    plain_step_seconds: float | None
    """Median time of a step without the profiler; ``None`` if there was none."""
    writing_seconds: float
    """Time in which training waited for records to be collected; they are written in the background."""
    host_bytes: int | None
    """Most resident memory that a window added, with its records."""
    trace_bytes: int

    @property
    def slowdown(self) -> float | None:
        """How many times longer a recorded step took."""
        return self.recorded_step_seconds / self.plain_step_seconds if self.plain_step_seconds else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary(HtmlDisplay):
    """Summary of a run at its end."""

    logdir: str
    folder: str
    rank: int
    steps: int
    seconds: float
    verdicts: tuple[Finding, ...]
    findings: tuple[Finding, ...]
    peaks: tuple[Peak, ...]
    traces: tuple[str, ...]
    snapshots: tuple[str, ...]
    address_books: tuple[str, ...]
    monitor_log: str | None
    profiler: ProfilerCost | None
    scalars: bool = False
    windows_deleted: int = 0
    """Windows whose files were deleted again (``profiling.keep``)."""
    problems: tuple[str, ...] = ()
    """Parts that were switched off, and why."""
    exception: str | None = None
    out_of_memory: bool = False

    def __repr__(self) -> str:
        lines = [f"Summary of {self.folder}: {self.steps} steps in a run of {format_duration(self.seconds)}"]
        lines += [f"  {peak.device}: peak {format_bytes(peak.bytes)} {peak.when}" for peak in self.peaks]
        lines += [f"  {verdict.device}: {verdict.kind.label}: {verdict.message}" for verdict in self.verdicts]
        return "\n".join(lines)
