"""What the traces of a run tell of its spikes when it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tbmem.analysis.detector.spike_test import Confirmation
from tbmem.model.finding import Finding
from tbmem.runtime.process.guard import Guard
from tbmem.runtime.process.run_folder import RunFolder
from tbmem.runtime.profiling.window_ledger import WindowLedger

R = TypeVar("R")
_MOSTLY = 0.5
_OTHER_SPIKES = 3
"""One of so many recorded steps may be another spike."""


class RecordedTraces:
    """Reads the run's traces in the thread that has written them: the disk may not answer.

    Args:
        ledger: The windows that were recorded.
        folder: The run's folder; ``None`` where nothing is written.
        guard: Handles errors.
        deadline: Of waiting for the disk, ``time.monotonic``.
    """

    def __init__(self, ledger: WindowLedger, folder: RunFolder | None, guard: Guard, deadline: float) -> None:
        self._ledger, self._folder, self._guard, self._deadline = ledger, folder, guard, deadline
        self._levels: dict[int, int] = {}  # by recorded step the peak of its tensors in bytes, once one is asked for

    def confirms(self, step: int, height: int) -> Confirmation | None:
        """Whether tensors made most of the bytes by which a step has passed others while a window was open.

        Of a step that was recorded its trace tells, compared with the other recorded steps; in one of a warm-up no
        records lie between the tensors.
        """
        if step in self._ledger.warmups:
            return Confirmation()
        if self._excess(step) < _MOSTLY * height:
            return None

        def read() -> Confirmation:
            from tbmem.runtime.evidence.spike_explainer import recorded_sources

            path, sources = recorded_sources(self._ledger.recorded, step)
            return Confirmation(path.name, sources)

        return self._asked(read)

    def _excess(self, step: int) -> int:
        """Bytes by which a recorded step passes the others but the highest third, which may be spikes themselves."""

        def read() -> dict[int, int]:
            from tbmem.runtime.evidence.spike_explainer import recorded_levels  # loads the trace reader

            return recorded_levels(self._ledger.recorded, step)

        if step not in self._levels:
            self._levels = self._asked(read) or {}
        others = sorted(level for each, level in self._levels.items() if each != step)
        if step not in self._levels or not others:
            return 0
        return self._levels[step] - others[-1 - len(others) // _OTHER_SPIKES]

    def explained(self, findings: Sequence[Finding]) -> list[Finding]:
        """A further finding for each spike that a trace contains."""

        def read() -> list[Finding]:
            from tbmem.runtime.evidence.spike_explainer import explain_spikes  # loads the trace reader

            return explain_spikes(findings, self._ledger.recorded)

        return self._asked(read) or []

    def _asked(self, read: Callable[[], R]) -> R | None:
        if self._folder is None or not self._ledger.windows:
            return None
        return self._folder.writer.ask(lambda: self._guard.run("window spikes", read), self._deadline)
