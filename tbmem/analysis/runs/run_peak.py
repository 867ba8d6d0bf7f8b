"""The peak of a run on one device: the highest of its steps' peaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tbmem.model.columns import F64
from tbmem.model.monitor_log import SampleRow
from tbmem.model.run_summary import Peak
from tbmem.model.sample import MemorySample


class RunPeak:
    """Keeps the highest step, of samples as they are taken or of the rows of a log: both give the same.

    Steps that say more come first: a step without a peak counts by its level, and only in a run that has no peaks; a
    step of the CPU that the profiler recorded only in a run that has no others.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[bool, bool], Peak] = {}
        self._total: int | None = None

    @property
    def peak(self) -> Peak | None:
        """The highest so far; ``None`` if no level is known."""
        found = self._found[min(self._found)] if self._found else None
        return found and replace(found, total=self._total)

    def add(self, samples: Sequence[MemorySample]) -> None:
        """Take in samples; they may come twice."""
        for sample in samples:
            self._note(sample, sample.highest, sample.step)

    def add_row(self, row: SampleRow) -> None:
        """Take in a row of the log."""
        self._note(row.sample, row.highest, row.sample.step if row.peak_step is None else row.peak_step)

    def _note(self, sample: MemorySample, highest: int | None, step: int) -> None:
        self._total = sample.device_total or self._total
        if highest is None:
            return
        says = sample.holds_profiler, sample.peak is None
        before = self._found.get(says)
        if before is None or highest > before.bytes:
            self._found[says] = Peak(
                device=sample.device, rank=sample.rank, bytes=highest, step=step, counter=_counter(sample)
            )


def peak_levels(device: str, columns: Mapping[str, F64]) -> F64:
    """What each row of a log's columns counts for the run's peak by the same rule, 0 where nothing does."""
    known = ("peak_allocated", "host_peak_rss") if device == "cpu" else ("peak_allocated",)
    level = columns[known[0]]
    for name in (*known[1:], "allocated_max", "allocated"):
        level = np.where(np.isnan(level), columns[name], level)
    recorded = (columns["profiled"] == 1) & (device == "cpu")
    return np.nan_to_num(level if recorded.all() else np.where(recorded, 0, level))


def _counter(sample: MemorySample) -> str:
    if sample.peak_allocated is not None:
        return "peak_allocated"
    return "allocated" if sample.peak is None else "host_peak_rss"
