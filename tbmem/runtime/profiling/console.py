"""The lines of the scheduled profiler."""

from __future__ import annotations

import logging

from tbmem.present.lines import get_logger
from tbmem.units import format_bytes, parse_bytes


class ProfilerConsole:
    """Logs the schedule's states as they come (``shows``; else at debug level), and each warning once."""

    def __init__(self, *, shows: bool) -> None:
        self.shows = shows
        self.resumed_after = 0
        """Steps before this run, if it was resumed from a checkpoint."""
        self._warned: set[str] = set()

    def log(self, line: str, *values: object) -> None:
        """Log a state."""
        get_logger().log(logging.INFO if self.shows else logging.DEBUG, line, *values)

    def warn_once(self, line: str, *, of: str = "") -> None:
        """Warn once ``of`` something, by default of this line; later lines of the same are for debugging."""
        get_logger().log(logging.DEBUG if (of or line) in self._warned else logging.WARNING, "%s", line)
        self._warned.add(of or line)

    def warn_of_end(self, why: str, step: int, window: int, end: str) -> None:
        """Say once why windows end early or come later: what a step of this run has met, and what is kept."""
        self.warn_once(f"profiler: {why} at step {step + self.resumed_after}; window {window} {end}", of=why)

    def warn_of_large_step(self, limit: int | str) -> None:
        """Say once that a step needs more memory than its records may: ``profiling.max_records``."""
        self.warn_once(
            f"profiler: a step has too many operators to be recorded in {format_bytes(parse_bytes(limit))}"
            " (profiling.max_records), so this window is left out; tbmem.record() around a part of the step records"
            " that"
        )

    def steps(self, step: int, count: int) -> str:
        """``count`` steps of this run from ``step`` on in words, ``'steps 4-6'``."""
        first = step + self.resumed_after
        return f"step {first}" if count == 1 else f"steps {first}-{first + count - 1}"


def too_large(limit: int | str) -> str:
    """Why a window ends: its records need more than ``profiling.max_records``, or the process grows far beyond that."""
    most = format_bytes(parse_bytes(limit))
    return f"records need more than {most} (profiling.max_records), or the step itself far more than that"
