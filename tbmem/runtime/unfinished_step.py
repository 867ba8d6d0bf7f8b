"""UnfinishedStep: what memory a run has needed after its last step that ended."""

from __future__ import annotations

from collections.abc import Iterable

from tbmem.model.sample import MemorySample
from tbmem.model.sample_row import SampleRow
from tbmem.runtime.device_judge import DeviceJudges
from tbmem.sources.counters.sampler import Counters

UNFINISHED = "monitor (after the last step)"
"""Name of the reading for the guard."""


class UnfinishedStep:
    """The step in which a run ends: memory may run out in it, or an evaluation after training needs more than that."""

    def __init__(self) -> None:
        self._samples: list[MemorySample] = []
        self._was_read = False

    def read(self, counters: Counters, step: int, last: Iterable[MemorySample]) -> list[MemorySample]:
        """Read the counters, once, before tbmem's own work as the run ends.

        Args:
            counters: Source of the samples.
            step: Number of the step.
            last: Last sample of each device: after a step that was recorded the host still has the profiler's memory.

        Returns:
            Samples of the steps before, which were passed over.
        """
        if self._was_read:
            return []
        self._was_read = True
        profiled = any(sample.profiled for sample in last)
        samples = counters.sample(step, thorough=True, profiled=profiled)
        self._samples = [sample for sample in samples if sample.step == step]
        return [sample for sample in samples if sample.step < step]

    def rows(self, devices: DeviceJudges, *, ran_out: bool) -> list[SampleRow]:
        """Rows of the log, each once, where memory ``ran_out`` or the peak is that of the run; it is noted there."""
        told = [sample for sample in self._samples if ran_out or devices.is_raised_by(sample)]
        self._samples = [sample for sample in self._samples if sample not in told]
        rows = [SampleRow.unfinished(sample) for sample in told]
        for row in rows:
            devices.note_unfinished(row)
        return rows
