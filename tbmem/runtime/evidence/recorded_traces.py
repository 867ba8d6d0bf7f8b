"""What the traces of a run tell of its spikes when it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tbmem.analysis.detector.recorded_peaks import Confirmation
from tbmem.model.finding import Finding
from tbmem.runtime.process.guard import Guard
from tbmem.runtime.process.run_folder import RunFolder
from tbmem.runtime.profiling.window_ledger import WindowLedger

R = TypeVar("R")
_MOSTLY = 0.5


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

    def confirms(self, step: int, height: int) -> Confirmation:
        """Whether tensors made most of the bytes by which a step has passed others while a window was open.

        Of a step that was recorded its trace tells; in one of a warm-up no records lie between the tensors.
        """

        def read() -> int | None:
            from tbmem.runtime.evidence.spike_explainer import recorded_excess  # loads the trace reader

            return recorded_excess(self._ledger.recorded, step)

        if step in self._ledger.warmups:
            return Confirmation.WARM_UP
        return Confirmation.RECORDED if (self._asked(read) or 0) >= _MOSTLY * height else Confirmation.NONE

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
