"""Base of the sinks whose tools keep the latest value of a gauge, with labels, in bytes."""

from __future__ import annotations

from collections.abc import Sequence

from tbmem.present.scalars import scalars_of
from tbmem.runtime.metric_sinks import MetricSink, Point, Summary


class GaugeSink(MetricSink):
    """Sets a gauge for each scalar of the latest point, and for peaks and verdicts at the end."""

    def log(self, points: Sequence[Point]) -> None:  # noqa: D102
        for sample in points[-1].samples:
            self.set_gauge("step", sample.step, "", device=sample.device)
            for name, value, unit in scalars_of(sample):
                self.set_gauge(f"memory.{name}", value, unit, device=sample.device)

    def summarize(self, summary: Summary) -> None:  # noqa: D102
        for peak in summary.peaks:
            self.set_gauge("memory.peak", peak.bytes, "bytes", device=peak.device)
        for verdict in summary.verdicts:
            self.set_gauge("verdict", 1, "", device=verdict.device, verdict=verdict.kind.value)

    def set_gauge(self, name: str, value: float, unit: str, **labels: str) -> None:
        """Set a gauge such as ``memory.allocated`` in ``bytes``, ``percent`` or, as a count, an empty unit."""
        raise NotImplementedError
