"""What a run keeps of its profiler windows: their steps, files and cost."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path

from tbmem.model.run_summary import ProfilerCost

PLAIN_STEPS = 256
"""Number of steps outside windows whose duration is kept."""


@dataclass(slots=True, kw_only=True)
class WindowResult:
    """Steps, files and cost of a window."""

    number: int
    """1 for the first window of a run."""
    steps: list[int] = field(default_factory=list)
    prepared: int = 0
    """First step of the warm-up for it."""
    complete: bool = False
    """All steps of the window were run."""
    trace: Path | None = None
    address_book: Path | None = None
    snapshot: Path | None = None
    history_is_whole: bool = True
    """False if the snapshot's ring buffer overflowed."""
    step_seconds: list[float] = field(default_factory=list)
    writing_seconds: float = 0.0
    """Time in which the training loop waited for records to be collected; they are written in the background."""
    host_before: int = 0
    """Resident bytes of the process before the profiler was on."""
    host_after: int = 0
    """The same with all records collected, less what the program itself has added meanwhile."""
    peak: int = 0
    """Bytes of the highest sample of its steps, to tell windows of one run from each other."""

    @property
    def files(self) -> list[Path]:
        """Every file that was written."""
        return [path for path in (self.trace, self.address_book, self.snapshot) if path is not None]


@dataclass(slots=True)
class WindowLedger:
    """Files and cost of a run's windows."""

    windows: list[WindowResult] = field(default_factory=list)
    """Windows whose files are written, or are about to be."""
    snapshots: list[Path] = field(default_factory=list)
    """Snapshots of windows, of the user and of out-of-memory errors."""
    plain_steps: deque[float] = field(default_factory=lambda: deque(maxlen=PLAIN_STEPS))
    deleted: int = 0
    """Windows whose files were deleted since."""
    _recorded_steps: deque[float] = field(default_factory=lambda: deque(maxlen=PLAIN_STEPS))
    _totals: Counter[str] = field(default_factory=Counter)
    _writing_seconds: float = 0.0

    def add(self, window: WindowResult) -> None:
        """Add a window that has ended."""
        self.windows.append(window)
        self._recorded_steps += window.step_seconds
        host = max(window.host_after - window.host_before, 0)
        self._totals.update(windows=1, complete=int(window.complete), steps=len(window.step_seconds))
        self._totals["host"] = max(self._totals["host"], host)
        self._writing_seconds += window.writing_seconds

    def written(self, window: WindowResult, size: int) -> None:
        """The files of a window are on the disk, ``size`` bytes of them."""
        self._totals["bytes"] += size
        if window.snapshot is not None:
            self.snapshots.append(window.snapshot)

    def remove(self, window: WindowResult) -> None:
        """The files of a window are deleted, or will never be written."""
        self.windows.remove(window)
        self.deleted += bool(window.files)
        self.snapshots[:] = [path for path in self.snapshots if path != window.snapshot]

    @property
    def complete(self) -> int:
        """Number of windows all steps of which were run."""
        return self._totals["complete"]

    @property
    def recorded(self) -> dict[Path, range]:
        """The traces and their steps, in order."""
        traced = ((window.trace, window.steps) for window in self.windows)
        return {trace: range(steps[0], steps[-1] + 1) for trace, steps in traced if trace is not None}

    @property
    def warmups(self) -> set[int]:
        """Steps in which the profiler was on and kept no records."""
        return {step for window in self.windows for step in range(window.prepared, min(window.steps, default=0))}

    @property
    def traces(self) -> list[Path]:
        """The traces, in order."""
        return list(self.recorded)

    @property
    def address_books(self) -> list[Path]:
        """The address books, in order."""
        return [window.address_book for window in self.windows if window.address_book is not None]

    @property
    def files(self) -> list[Path]:
        """All files that were written and not deleted since."""
        return list(dict.fromkeys([*self.traces, *self.address_books, *self.snapshots]))

    def cost(self) -> ProfilerCost | None:
        """Cost of profiling; ``None`` if no step was recorded."""
        if not self._recorded_steps:
            return None
        from statistics import median  # slow to import

        return ProfilerCost(
            windows=self._totals["windows"],
            recorded_steps=self._totals["steps"],
            recorded_step_seconds=median(self._recorded_steps),
            plain_step_seconds=median(self.plain_steps) if self.plain_steps else None,
            writing_seconds=self._writing_seconds,
            host_bytes=self._totals["host"],
            trace_bytes=self._totals["bytes"],
        )
